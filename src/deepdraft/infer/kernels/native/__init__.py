"""The native back end's C++ sources, how they are built (`build`), and the built library (`library`)."""
