#pragma once

#include <string>

#include "ring/engine/observe/metrics.h"

namespace rondo {

// The metrics in Prometheus' text format (version 0.0.4). Series that are 0 are left out, but for those without a label
// of their own. rank: the label of every series.
std::string prometheus_text(const Metrics& metrics, int rank);

}  // namespace rondo
