#pragma once

namespace rondo {

// Whom `rank` meets in Swing's exchange k. Ranks stand on a ring, and the distances are 1, -1, 3, -5, 11, ..:
// (1 - (-2)^(k+1)) / 3, for odd ranks the other way. They are all odd, so that an even rank always meets an odd one,
// and they are shorter than the powers of two (De Sensi, Bonato, Saam, Hoefler, "Swing: short-cutting rings for higher
// bandwidth allreduce", 2024).
constexpr int swing_partner(int world, int rank, int k) {
  int power = -2;
  for (int i = 0; i < k; ++i) power *= -2;
  const int distance = (1 - power) / 3;
  return ((rank % 2 == 0 ? rank + distance : rank - distance) % world + world) % world;
}

}  // namespace rondo
