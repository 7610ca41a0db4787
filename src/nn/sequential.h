// What a Sequential holds once it is a model of its own: shared by the copies of the handle.
#pragma once

#include <optional>

#include "aicf/model.h"
#include "aicf/nn.h"
#include "aicf/program.h"

namespace aicf::nn {

struct Sequential::State {
  std::optional<Model> model;
  Program program;  // of `model`
};

}  // namespace aicf::nn
