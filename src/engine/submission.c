/* Submissions as bytes, and as jobs: see submission.h. */
#include "engine/submission.h"

#include "base/err.h"

#include <stdio.h>
#include <string.h>

void submission_encode(struct wire_out *out, const struct submission *s)
{
	wire_put_u32(out, SUBMISSION_VERSION);
	wire_put_u64(out, (uint64_t)s->wall_ns);
	wire_put_str(out, s->cwd);
	wire_put_blob(out, s->file, s->len_bytes);
	wire_put_str(out, s->name ? s->name : "");
	wire_put_u32(out, s->vars_n);
	for (uint32_t i = 0; i < s->vars_n; i++) {
		wire_put_str(out, s->vars[i].name);
		wire_put_str(out, s->vars[i].value);
		wire_put_u8(out, s->vars[i].secret);
	}
	wire_put_u32(out, s->args_n);
	for (uint32_t i = 0; i < s->args_n; i++) {
		wire_put_str(out, s->args[i]);
	}
	wire_put_u32(out, s->env_n);
	for (uint32_t i = 0; i < s->env_n; i++) {
		wire_put_str(out, s->env[i]);
	}
}

/* Reads a string without NULs. Returns NULL if in has failed. */
static const char *get_text(struct submission *s, struct wire_in *in)
{
	uint32_t len = 0;
	const uint8_t *bytes = wire_get_blob(in, &len);
	const char *text = in->failed ? NULL : sched_arena_copy_text(&s->arena, bytes, len);

	if (text && strlen(text) != len) {
		in->failed = true;
	}
	return in->failed ? NULL : text;
}

/* Reads a count. More than most is an error: returns 0, and in has failed. */
static uint32_t get_count(struct wire_in *in, uint32_t most)
{
	uint32_t n = wire_get_u32(in);

	in->failed = in->failed || n > most;
	return in->failed ? 0 : n;
}

static const char **get_texts(struct submission *s, struct wire_in *in, uint32_t n)
{
	const char **texts = sched_arena_alloc(&s->arena, (n + 1) * sizeof(*texts));

	for (uint32_t i = 0; i < n && texts && !in->failed; i++) {
		texts[i] = get_text(s, in);
	}
	return texts;
}

static void get_all(struct submission *s, struct wire_in *in)
{
	const uint8_t *file;

	s->wall_ns = (int64_t)wire_get_u64(in);
	s->cwd = get_text(s, in);
	file = wire_get_blob(in, &s->len_bytes);
	s->file = in->failed ? NULL : sched_arena_copy_text(&s->arena, file, s->len_bytes);
	s->name = get_text(s, in);
	s->vars_n = get_count(in, SUBMISSION_VARS_MAX);
	s->vars = sched_arena_alloc(&s->arena, (s->vars_n + 1) * sizeof(*s->vars));
	for (uint32_t i = 0; i < s->vars_n && s->vars && !in->failed; i++) {
		s->vars[i].name = get_text(s, in);
		s->vars[i].value = get_text(s, in);
		s->vars[i].secret = wire_get_u8(in) != 0;
	}
	s->args_n = get_count(in, SUBMISSION_ARGS_MAX);
	s->args = get_texts(s, in, s->args_n);
	s->env_n = get_count(in, SUBMISSION_ENV_MAX);
	s->env = get_texts(s, in, s->env_n);
}

/* Checks the fields: another program than Pawl may have written them. */
static bool is_sound(const struct submission *s)
{
	bool good = s->cwd[0] == '/' && (s->name[0] == '\0' || jobfile_is_name(s->name));

	for (uint32_t i = 0; i < s->vars_n; i++) {
		good = good && jobfile_is_var(s->vars[i].name) &&
			strlen(s->vars[i].value) < SPEC_VALUE_MAX;
	}
	for (uint32_t i = 0; i < s->env_n; i++) {
		good = good && strchr(s->env[i], '=') && s->env[i][0] != '=';
	}
	return good;
}

int submission_decode(struct submission *s, const void *bytes, size_t len_bytes,
	struct pawl_err *err)
{
	struct wire_in in;
	uint32_t version;
	int rv = 0;

	memset(s, 0, sizeof(*s));
	wire_in_init(&in, bytes, len_bytes);
	version = wire_get_u32(&in);
	if (!in.failed && version != SUBMISSION_VERSION) {
		return pawl_err_set(err, PAWL_EINVAL,
			"the submission has version %u; this Pawl reads version %u", version,
			SUBMISSION_VERSION);
	}
	get_all(s, &in);
	if (s->arena.failed) {
		rv = pawl_err_set(err, PAWL_ENOMEM, "no memory for a submission");
	} else if (!wire_in_done(&in) || !is_sound(s)) {
		rv = pawl_err_set(err, PAWL_EINVAL, "the submission is malformed");
	}
	if (rv != 0) {
		submission_deinit(s);
		return rv;
	}
	s->name = s->name[0] != '\0' ? s->name : NULL;
	return 0;
}

void submission_deinit(struct submission *s)
{
	sched_arena_deinit(&s->arena);
	memset(s, 0, sizeof(*s));
}

int submission_spec(const struct submission *s, struct sched_spec *spec, struct remarks *remarks,
	struct pawl_err *err)
{
	const struct jobfile_given given = {s->name, s->vars, s->vars_n, false};

	return jobfile_decode(spec, s->file, s->len_bytes, &given, remarks, NULL, err);
}

int submission_path(const char *home, const char *cwd, const char *path, char full[PATH_MAX],
	struct pawl_err *err)
{
	bool at_home = path[0] == '~' && (path[1] == '/' || path[1] == '\0');
	int len = at_home        ? snprintf(full, PATH_MAX, "%s%s", home, path + 1)
		: path[0] == '/' ? snprintf(full, PATH_MAX, "%s", path)
				 : snprintf(full, PATH_MAX, "%s/%s", cwd, path);

	return len < PATH_MAX ? 0
			      : pawl_err_set(err, PAWL_EINVAL, "%s: the path is too long", path);
}

int submission_mount(const char *home, const char *cwd, const struct sched_mount *mount,
	char at[PATH_MAX], char from[PATH_MAX], struct pawl_err *err)
{
	int rv = submission_path(home, cwd, mount->at, at, err);

	if (mount->kind != SCHED_MOUNT_LINK) {
		snprintf(from, PATH_MAX, "%s", mount->from);
		return rv;
	}
	return rv == 0 ? submission_path(home, cwd, mount->from, from, err) : rv;
}

bool submission_wants_scratch(const struct sched_spec *spec)
{
	bool wants = false;

	for (uint32_t i = 0; i < spec->choices_n; i++) {
		wants = wants || spec->choices[i].disk_best;
	}
	return wants;
}
