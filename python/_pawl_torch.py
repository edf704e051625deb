"""What torch calls when it is imported (entry point torch.backends), so that it knows the backend
"pawl". It stands outside of the package: no import of torch may fail because something in there is
broken, or gone.
"""


def autoload() -> None:
    """Registers the backend; says so, and no more, if that fails."""
    try:
        from pawl import _register

        _register.autoload()
    except Exception as error:
        import warnings

        warnings.warn(f"pawl: no torch.distributed backend: {error!r}", stacklevel=2)
