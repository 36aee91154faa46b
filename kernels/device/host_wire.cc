#include "kernels/device/host_wire.h"

#include "kernels/device/wire_pass.h"

namespace rondo {
namespace {

uint64_t blocks_of(const DeviceWire& wire) { return (wire.count + kElements - 1) / kElements; }

template <class Code>
void encode(const DeviceWire& wire) {
  for (uint64_t block = 0; block < blocks_of(wire); ++block) {
    LaneValues values[kLanes];
    uint32_t magnitude = 0;
    for (int lane = 0; lane < kLanes; ++lane) {
      values[lane] = load_lane<Code>(wire, block, lane);
      magnitude = magnitude > values[lane].magnitude ? magnitude : values[lane].magnitude;
      if (values[lane].unfit < *wire.unfit) *wire.unfit = values[lane].unfit;
    }
    for (int lane = 0; lane < kLanes; ++lane) encode_lane<Code>(wire, block, lane, values[lane], magnitude);
  }
}

template <class Code>
void decode(const DeviceWire& wire) {
  for (uint64_t block = 0; block < blocks_of(wire); ++block) {
    for (int lane = 0; lane < kLanes; ++lane) decode_lane<Code>(wire, block, lane);
  }
}

struct Host {
  struct Entry {
    void (*encode)(const DeviceWire& wire);
    void (*decode)(const DeviceWire& wire);
  };
  template <class Code>
  static constexpr Entry of() {
    return {encode<Code>, decode<Code>};
  }
};

constexpr WireLanes<Host> kFormats = wire_lanes<Host>();

}  // namespace

void host_wire_encode(const DeviceWire& wire) { kFormats.of[wire.format].encode(wire); }
void host_wire_decode(const DeviceWire& wire) { kFormats.of[wire.format].decode(wire); }

}  // namespace rondo
