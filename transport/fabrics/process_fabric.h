#pragma once

#include <memory>

#include "rondo/config.h"
#include "rondo/store.h"
#include "transport/fabric.h"
#include "transport/rendezvous/launch.h"

namespace rondo {

// Joins a job: publishes this rank at the store, learns all others, and returns when the control connections (TCP)
// stand, and the ranks of each host have agreed on who shares memory (Config::transport). Data links follow when they
// are asked for. The store is not used afterwards.
//
// Throws Exception: kInvalid (settings), kSystem (descriptors, threads), kBootstrap (ranks missing, or started with
// other settings), kPeerLost (a rank died meanwhile), kNetwork (cannot listen).
//
// Destroying the fabric says goodbye to all processes, and waits at most Config::destroy_timeout_ms until they have
// heard it. In a child made by fork every call throws kInvalid, and destruction does nothing.
std::shared_ptr<Fabric> join_processes(const Launch& launch, const std::shared_ptr<Store>& store, const Config& config,
                                       Store::Deadline deadline);

}  // namespace rondo
