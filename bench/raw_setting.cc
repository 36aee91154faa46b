#include "bench/raw_setting.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/sizes.h"

namespace rondo::bench {

std::string setting_text(const RawSetting& setting) {
  return fmt::format("{} transfers, {}, {}, {} connection{}, {}", size_text(setting.transfer_bytes),
                     driving_name(setting.driving), setting.congestion, setting.connections,
                     setting.connections == 1 ? "" : "s", memory_name(setting.memory));
}

std::vector<RawSetting> all_settings(const std::vector<std::string>& congestion_controls, uint64_t buffer_bytes) {
  std::vector<RawSetting> settings;
  const auto add = [&](uint64_t transfer, Driving driving, const std::string& congestion, int connections) {
    const uint64_t share = buffer_bytes / static_cast<uint64_t>(connections);
    if (transfer > 64u << 10 && transfer * std::max<uint64_t>(driving_lead(driving), 1) > share) return;
    for (int memory = 0; memory < kMemories; ++memory) {
      settings.push_back({transfer, driving, congestion, connections, static_cast<Memory>(memory)});
    }
  };
  for (const std::string& congestion : congestion_controls) {
    for (int connections : {1, 2, 4}) {
      for (int driving = 0; driving < kDrivings; ++driving) {
        for (uint64_t transfer : {64u << 10, 256u << 10, 1u << 20, 4u << 20}) {
          add(transfer, static_cast<Driving>(driving), congestion, connections);
        }
      }
    }
  }
  return settings;
}

}  // namespace rondo::bench
