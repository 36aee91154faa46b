#pragma once

#include "transport/control/control_action.h"
#include "transport/control/control_settings.h"
#include "transport/control/departures.h"
#include "transport/control/liveness.h"

namespace rondo {

// What the machines of a communicator have of their rank. All of it is ControlLogic's, and outlives them.
struct RankView {
  const ControlSettings& settings;
  const Departures& departures;
  const Liveness& liveness;
  control::Actions& actions;
};

}  // namespace rondo
