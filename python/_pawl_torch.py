"""Entry point of torch.backends: torch calls it while it is imported, so that it knows the backend
"pawl". It stands outside of the package: no import of torch may fail because something in there is
broken, or gone.
"""


def autoload() -> None:
    """Registers the backend; if that fails, prints a message and does no more."""
    try:
        from pawl._group import _register

        _register.autoload()
    except Exception as error:
        import warnings

        warnings.warn(f"pawl: no torch.distributed backend: {error!r}", stacklevel=2)
