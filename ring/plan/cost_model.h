#pragma once

namespace rondo {

// What moving and folding costs: `alpha` until a slice's first byte is there, `beta` a byte on a port, `gamma` a byte
// folded. Every rank has one port out and one port in, which all its links share.
// The defaults are of the order of TCP over loopback (5 us a message, 4 GB/s, a float32 add at 12 GB/s); a calibration
// by measurement can replace them, as long as it is equal on all ranks.
struct CostModel {
  double alpha_us = 5.0;
  double beta_us_per_byte = 1.0 / 4000;
  double gamma_us_per_byte = 1.0 / 12000;
};

}  // namespace rondo
