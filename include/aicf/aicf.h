// Everything a program that uses AICF needs. Start reading at program.h (compile and step) and model.h.
#pragma once

#include "aicf/data.h"
#include "aicf/dtype.h"
#include "aicf/error.h"
#include "aicf/info.h"
#include "aicf/metrics.h"
#include "aicf/model.h"
#include "aicf/nn.h"
#include "aicf/ops.h"
#include "aicf/optim.h"
#include "aicf/program.h"
#include "aicf/recipe.h"
#include "aicf/safetensors.h"
#include "aicf/shape.h"
#include "aicf/tensor.h"
#include "aicf/value.h"
#include "aicf/verify.h"
