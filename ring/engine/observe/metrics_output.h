#pragma once

#include <memory>
#include <string>

#include "ring/engine/observe/observer.h"
#include "rondo/config.h"

namespace rondo {

// The observer of one join as Config says: with a trace, with metrics that a thread of its own writes, or off.
// Throws Exception(kSystem) where a file cannot be had.
std::shared_ptr<Observer> make_observer(ObservedRank about, const Config& config);

// Throws what make_observer() would, and leaves nothing behind.
void check_outputs(const Config& config);

// The metrics in Prometheus' text format (version 0.0.4). Series that are 0 are left out, but for those without a label
// of their own. rank: the label of every series.
std::string prometheus_text(const Metrics& metrics, int rank);

}  // namespace rondo
