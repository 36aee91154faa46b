// The parts of Asio that are no templates, compiled once; all other files have ASIO_SEPARATE_COMPILATION.
#include <asio/detail/config.hpp>
// Timers by the time that epoll waits: a descriptor less a rank, and a thread whose descriptors were closed under it
// still finds out.
#undef ASIO_HAS_TIMERFD
#include <asio/impl/src.hpp>
