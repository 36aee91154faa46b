#pragma once

#include "rondo/error.h"

namespace rondo {

// In a catch block: the exception that is being handled, as an error. An Exception gives its own error, lack of
// memory and refusals of the system kSystem, anything else kInternal with its text. Without memory for a text
// it is empty.
Error caught() noexcept;

// kept = error. Without memory for the text, kept has the code alone.
void keep_error(const Error& error, Error& kept) noexcept;

}  // namespace rondo
