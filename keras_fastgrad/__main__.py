"""`python -m keras_fastgrad`, the same as the command `keras-fastgrad`."""

from keras_fastgrad.cli import main

main()
