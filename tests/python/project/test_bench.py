"""The benchmarks run, print what they should in the right form, and leave nothing behind.

The measurements are not checked: the machine is busy with other tests.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

import buckets
import netns
import program

BENCH = Path(__file__).parents[3] / "bench"
LIMIT_S = 300  # limit of a quick run

program.find()

# Keys of each row that issues a goal or a bound: without them docs/benchmarks.md would lack the
# row.
KEYS = {
    "checkpoint": {
        "metrics": {
            "save_ms", "save_p99_ms", "dcp_return_ms", "seen_0.01_upper_s", "torch_0.01_s",
            "dcp_0.01_s", "tier_excess_mb", "now_s", "now_first_s", "persist_gib_s", "cold_gib_s",
            "warm_gib_s", "memory_gib_s", "trainer_grown_mb", "trainer_grown_fds", "agent_grown_mb",
            "agent_grown_fds", "due_us", "import_ms", "version_ms",
        },
        "ratios": {
            "save_p99_to_median", "seen_0.01_to_torch", "seen_0.01_to_dcp", "seen_0.01_to_memcpy",
            "python_while_persisting", "matmul_while_persisting", "persist_to_raw",
            "persist_to_torch", "persist_to_dcp", "cold_to_raw", "cold_to_torch", "warm_to_torch",
            "memory_to_memcpy",
        },
        "bound": {"memcpy_s", "memcpy_now_s", "write_gib_s", "read_gib_s", "memcpy_gib_s"},
    },
    "adapt": {
        "metrics": {"fit_cold", "fit_warm", "choose", "quadratic_bias", "logistic_cover"},
        "ratios": set(),
        "bound": set(),
    },
    "bucket": {
        "metrics": {
            "put_pawl", "get_pawl", "paced_pawl", "durable_s", "agent_mib", "agent_grown_fds",
            "agent_drift", "requests_small", "requests_keep", "requests_large", "newest_lists",
            "newest_gets", "newest_s",
        },
        "ratios": {
            "put_curl", "get_curl", "paced_curl", "save_to_local", "cycle_to_local",
            "steps_uploading",
        },
        "bound": {"loopback", "paced_bound", "link_s", "newest_bound_s"},
    },
    "elastic": {
        "metrics": {"step", "shrink", "grow", "start", "statistics"},
        "ratios": set(),
        "bound": set(),
    },
    "allreduce": {
        "metrics": {"one4_ms", "many4_ms", "small4_ms", "one2_ms", "binding_us", "import_s"},
        "ratios": {
            "one4_to_gloo", "many4_to_gloo", "small4_to_gloo", "one2_to_gloo", "binding_to_gloo",
        },
        "bound": {"copy4_ms"},
    },
    "cuda": {
        "metrics": {
            "lost_tiny_overlap_ms", "lost_tiny_now_ms", "call_tiny_overlap_ms", "lost_tiny_cpu_ms",
            "lost_tiny_torch_ms", "lost_tiny_dcp_ms", "goal_tiny_ms", "stretch_tiny_ms",
            "restore_tiny_memory_s", "restore_tiny_disk_s", "restore_tiny_torch_s",
            "reduce_4k_2_ms", "ddp_pawl_2_ms", "ddp_gloo_2_ms",
        },
        "ratios": {"restore_tiny_disk_to_torch", "reduce_4k_2_to_gloo", "ddp_to_gloo_2"},
        "bound": {"down_tiny_gb_s", "link_tiny_ms", "reduce_4k_2_link_ms", "ddp_none_2_ms"},
    },
    "curves": {
        "metrics": {"AdamW_fp64", "SGD_fp64"},
        "ratios": {"AdamW_fp32", "SGD_fp32"},
        "bound": set(),
    },
    "faults": {
        "metrics": {
            "kill_named_s", "kill_next_s", "stop_named_s", "stop_next_s", "accused",
        },
        "ratios": set(),
        "bound": set(),
    },
    "frameworks": {
        "metrics": {
            "trainer_stock_s", "trainer_thread_s", "trainer_pawl_s", "lightning_stock_s",
            "lightning_async_s", "lightning_pawl_s", "deepspeed_torch_s", "deepspeed_pawl_s",
            "list_ms", "get_ms", "incremental_whole_mb", "incremental_whole_s", "incremental_s",
        },
        "ratios": {
            "trainer_to_stock", "trainer_to_thread", "lightning_to_stock", "lightning_to_async",
            "deepspeed_torch_to_pawl", "incremental_bytes",
        },
        "bound": set(),
    },
    "headline": {
        "metrics": {"seen_0.01_pawl_first_s", "durable_0.01_torch_s", "run1_none_s", "run2_dcp_s"},
        "ratios": {"seen_0.01_later_to_dcp", "durable_0.01_first_to_torch", "run2_pawl_to_none"},
        "bound": {"raw_0.01_s"},
    },
    "injections": {"metrics": {"failed"}, "ratios": set(), "bound": set()},
    "mirror": {
        "metrics": {"synced_wait_s", "paced_wait_s", "order_mirror"},
        "ratios": {"synced_to_plain", "synced_lag", "paced_to_plain", "paced_lag"},
        "bound": {"synced_plain_s", "synced_upload_s", "paced_plain_s", "paced_upload_s"},
    },
    "pipeline": {
        "metrics": {"call_us", "sum_gap", "error_replicate", "error_torch"},
        "ratios": {
            "1f1b_4_bound", "interleaved_4_plan", "zbv_4_plan", "gpt2", "gpt2_auto",
            "gpt2_hand_bytes", "live_0", "measure", "unets_smp", "unets_equal",
        },
        "bound": set(),
    },
    "real": {
        "metrics": {"start_alone_s", "start_nodes_s", "start_replicas_s", "ls_1000_ms"},
        "ratios": {"better", "better_1"},
        "bound": set(),
    },
    "replicate": {
        "metrics": {"rate_free", "rate_1gbit", "lost_s", "lost_store_s", "parity_memory"},
        "ratios": {
            "to_raw_free", "to_raw_1gbit", "steps_light", "steps_busy", "lost_to_store",
            "parity_cache_to_crc", "parity_memory_to_crc",
        },
        "bound": {"raw_free", "raw_1gbit", "link_1gbit"},
    },
    "reshard": {
        "metrics": {"save_gib_s", "stall_ms", "cold_gib_s", "cached_gib_s", "same_s", "reshard_s"},
        "ratios": {"save_to_stock", "stall_to_stock", "cached_to_stock", "reshard_to_same"},
        "bound": {"write_gib_s", "read_gib_s"},
    },
    "restart": {
        "metrics": {"pawl_s", "torchrun_s", "pawl_steps_lost", "torchrun_steps_lost"},
        "ratios": {"pawl_to_torchrun"},
        "bound": set(),
    },
}  # fmt: skip


WITHOUT_FILES = ("curves", "pipeline")
OPTIONS = {"cuda": ["--device=cpu"]}  # options that differ from those of the other benchmarks

slow = pytest.mark.skipif(not os.environ.get("PAWL_LONG"), reason="minutes: make test-long")


QUICK = ("checkpoint", "adapt", "bucket", "mirror", "replicate")


@pytest.mark.slow("checkpoint", "bucket", "mirror", "replicate")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else slow) for name in KEYS]
)
def test_quick_run_reports(name: str, tmp_path: Path) -> None:
    if name in ("bucket", "replicate"):
        buckets.find_weed()
    if name == "replicate":
        with netns.hosts(1):
            pass
    command = [
        sys.executable,
        str(BENCH / f"{name}.py"),
        "--json",
        "--quick",
        *OPTIONS.get(name, []),
    ]
    if name not in WITHOUT_FILES:
        command.append(f"--dir={tmp_path}")
    done = subprocess.run(
        command, env=program.clean_env(), capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.returncode == 0, done.stderr[-4000:]
    *table, last = done.stdout.splitlines()
    assert name == "headline" or any(
        ("≤" in line or "≥" in line) and ("met" in line or "MISSED" in line) for line in table
    )
    result = json.loads(last)
    assert set(result) == {"name", "runs", "metrics", "ratios", "bound", "setting"}
    assert result["name"] == name
    assert result["runs"] >= 1
    assert {"loadavg before", "loadavg after", "cores", "torch"} <= set(result["setting"])
    for part, keys in KEYS[name].items():
        assert keys <= set(result[part]), part
        assert all(math.isfinite(value) for value in result[part].values()), part
    assert all(value > 0 for value in result["bound"].values())
    assert not list(tmp_path.iterdir())


def test_bound_and_percentile() -> None:
    sys.path.append(str(BENCH))
    from shared import _report

    values = [float(number) for number in range(1, 101)]
    assert _report.percentile(values, 99) == 99
    assert _report.percentile([7.0], 99) == 7
    # mean 50.5, standard deviation 29.01, so a standard error of 2.901
    assert _report.upper_bound(values) == pytest.approx(50.5 + 1.66 * 2.9011, abs=1e-3)
