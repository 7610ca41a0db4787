#include "aicf/info.h"

#include <fmt/core.h>
#include <toml++/toml.h>
#include <zlib.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "aicf/error.h"
#include "backend/api.h"
#include "ir/op.h"
#include "passes/pass.h"

namespace aicf {
namespace {

const char* kind_name(ir::AttrSpec::Kind kind) {
  constexpr const char* kNames[] = {"bool", "integer", "real", "text", "integers", "dtype"};
  return kNames[static_cast<int>(kind)];
}

std::string gradient_name(const ir::OpDef& def) {
  if (def.grad == nullptr) return "expansion";
  if (def.grad == ir::zero_gradient) return "zero";
  return def.grad == ir::not_differentiable ? "none" : "rule";
}

}  // namespace

std::string version() { return AICF_VERSION; }

std::vector<OpInfo> list_ops() {
  std::vector<OpInfo> list;
  for (const ir::OpDef* def : ir::op_table()) {
    OpInfo info;
    info.name = def->name;
    info.kind = def->is(ir::kPointwise) ? "pointwise" : def->is(ir::kComposite) ? "composite" : "primitive";
    for (const char* operand : def->operand_names) info.operands.emplace_back(operand);
    if (def->num_inputs == ir::kVariadic) info.operands.emplace_back("…");
    for (const ir::AttrSpec& attr : def->attrs) {
      info.attributes.push_back(std::string(attr.name) + ": " + kind_name(attr.kind) +
                                (attr.required ? " (required)" : ""));
    }
    for (DType dtype : def->dtypes) info.dtypes.emplace_back(name_of(dtype));
    info.gradient = gradient_name(*def);
    for (const backend::Kernel& kernel : backend::cpu_backend().kernels()) {
      if (info.name == kernel.op) info.kernels.emplace_back(kernel.variant);
    }
    info.samples = static_cast<int>(def->samples().size());
    list.push_back(std::move(info));
  }
  return list;
}

std::vector<BackendInfo> list_backends() {
  std::vector<BackendInfo> list;
  for (const char* name : {"cpu", "cuda"}) {
    BackendInfo info{name, true, {}};
    try {
      info.description = backend::find(name).description();
    } catch (const Error& e) {
      info.available = false;
      info.description = e.what();
    }
    list.push_back(std::move(info));
  }
  return list;
}

std::vector<std::string> list_libraries() {
  return {
      "highway " AICF_HIGHWAY_VERSION,
      "fmt " + std::to_string(FMT_VERSION / 10000) + "." + std::to_string(FMT_VERSION / 100 % 100) + "." +
          std::to_string(FMT_VERSION % 100),
      "nlohmann-json " + std::to_string(NLOHMANN_JSON_VERSION_MAJOR) + "." +
          std::to_string(NLOHMANN_JSON_VERSION_MINOR) + "." + std::to_string(NLOHMANN_JSON_VERSION_PATCH),
      "toml++ " + std::to_string(TOML_LIB_MAJOR) + "." + std::to_string(TOML_LIB_MINOR) + "." +
          std::to_string(TOML_LIB_PATCH),
      std::string("zlib ") + zlibVersion(),
  };
}

std::vector<PassInfo> list_passes() {
  std::vector<PassInfo> list;
  for (const passes::Pass& pass : passes::pipeline()) {
    const auto same = [&](const PassInfo& known) { return known.name == pass.name; };
    if (std::any_of(list.begin(), list.end(), same)) continue;
    constexpr const char* kEffects[] = {"required", "exact", "reorders"};
    list.push_back({pass.name, kEffects[static_cast<int>(pass.effect)]});
  }
  return list;
}

}  // namespace aicf
