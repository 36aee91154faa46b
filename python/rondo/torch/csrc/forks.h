#pragma once

namespace rondo_torch {

// How often this process was forked from the one that loaded the module: a communicator is its process's.
int forks_so_far();

}  // namespace rondo_torch
