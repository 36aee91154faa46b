#pragma once

// Both forms of functions whose counts' type differs: FORM(type of a count, suffix of the name).
#define BOTH(FORM) FORM(int, ) FORM(MPI_Count, _c)
