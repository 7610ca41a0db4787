// Scaffolding.
#include "backend/cuda/kernels.h"
