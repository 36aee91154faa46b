#pragma once

#include <memory>
#include <string>

#include "ring/engine/observe/observer.h"
#include "rondo/config.h"

namespace rondo {

// The observer of one join, as Config says: with a trace, with metrics that a thread of its own writes, or off.
// Throws Exception(kSystem) if a file cannot be made.
std::shared_ptr<Observer> make_observer(ObservedRank about, const Config& config);

// Throws what make_observer() would throw, before the start of the join, and leaves nothing behind.
void check_outputs(const Config& config);

// The metrics in Prometheus' text format (version 0.0.4). Series that are 0 are left out, unless they have no
// label of their own. rank: the label of every series.
std::string prometheus_text(const Metrics& metrics, int rank);

}  // namespace rondo
