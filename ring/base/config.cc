#include "ring/base/config.h"
