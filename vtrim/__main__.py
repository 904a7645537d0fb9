"""``python -m vtrim``: the same as the ``vtrim`` command (the DeepSpeed launcher starts it so)."""

from vtrim.cli.main import main

if __name__ == "__main__":
    main()
