"""Virtual time: the event loop whose clock jumps, and real timers beside it."""
