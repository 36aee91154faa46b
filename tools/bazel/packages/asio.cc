// The parts of Asio that are no templates, compiled once; all other files have ASIO_SEPARATE_COMPILATION.
#include <asio/impl/src.hpp>
