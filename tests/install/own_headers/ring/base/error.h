inline constexpr int kOwnError = 2;
