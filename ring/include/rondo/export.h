#pragma once

// Marks what librondo.so shows to others; everything else is hidden (-fvisibility=hidden).
#define RONDO_EXPORT __attribute__((visibility("default")))
