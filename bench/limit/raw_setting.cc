#include "bench/limit/raw_setting.h"

#include <fmt/format.h>

#include "bench/loop/sizes.h"

namespace rondo::bench {

std::string setting_text(const RawSetting& setting) {
  return fmt::format("{} transfers, {}, {}, {} connection{}, {}", size_text(setting.transfer_bytes),
                     driving_name(setting.driving), setting.congestion, setting.connections,
                     setting.connections == 1 ? "" : "s", memory_name(setting.memory));
}

// Few connections and small transfers come first: of equally fast settings the first one is named.
std::vector<RawSetting> limit_settings(const std::string& congestion, uint64_t buffer_bytes) {
  std::vector<RawSetting> settings;
  for (int connections : {1, 4}) {
    for (uint64_t transfer : {kLeastTransferBytes, uint64_t{1} << 20}) {
      if (transfer * static_cast<uint64_t>(connections) > buffer_bytes) continue;
      for (Driving driving : {Driving::kPoll, Driving::kTwoThreads, Driving::kLockStep}) {
        for (Memory memory : {Memory::kWalk, Memory::kRelay}) {
          settings.push_back({transfer, driving, congestion, connections, memory});
        }
      }
    }
  }
  return settings;
}

}  // namespace rondo::bench
