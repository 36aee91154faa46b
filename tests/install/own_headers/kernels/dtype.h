inline constexpr int kOwnDtype = 1;
