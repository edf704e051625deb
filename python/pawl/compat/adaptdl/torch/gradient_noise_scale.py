"""``adaptdl.torch.gradient_noise_scale``."""

from pawl.elastic._gns import AdamGradientNoiseScale, GradientNoiseScale

__all__ = ["AdamGradientNoiseScale", "GradientNoiseScale"]
