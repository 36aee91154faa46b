#pragma once

#include "rondo/error.h"

namespace rondo {

// What is being handled, in a catch block: an Exception's own error, kSystem where memory has run out or the system
// refused something, else kInternal with the exception's text. Without memory for a text it is empty.
Error caught() noexcept;

// kept = error; without memory for the text its code.
void keep_error(const Error& error, Error& kept) noexcept;

}  // namespace rondo
