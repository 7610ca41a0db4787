// aicf info and aicf ops: what this build is and can do.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "common.h"

namespace aicf::cli {

int info(const std::string& json) {
  fmt::print("aicf {}\nlibraries: {}\n", version(), fmt::join(list_libraries(), ", "));
  nlohmann::json backends = nlohmann::json::array();
  for (const BackendInfo& backend : list_backends()) {
    fmt::print("backend {}: {}{}\n", backend.name, backend.available ? "" : "not available: ", backend.description);
    backends.push_back(
        {{"name", backend.name}, {"available", backend.available}, {"description", backend.description}});
  }
  nlohmann::json passes = nlohmann::json::array();
  std::string line;
  for (const PassInfo& pass : list_passes()) {
    line += fmt::format("{}{} ({})", line.empty() ? "" : ", ", pass.name, pass.effect);
    passes.push_back({{"name", pass.name}, {"effect", pass.effect}});
  }
  fmt::print("passes: {}\nops: {}\n", line, list_ops().size());
  write_json(json,
             {{"version", version()}, {"libraries", list_libraries()}, {"backends", backends}, {"passes", passes}});
  return kOk;
}

int ops(const std::string& name, const std::string& json) {
  nlohmann::json rows = nlohmann::json::array();
  bool found = false;
  if (name.empty()) {
    fmt::print("{:<16} {:<10} {:<10} {:<28} {}\n", "op", "kind", "gradient", "operands", "dtypes (cpu)");
  }
  for (const OpInfo& op : list_ops()) {
    rows.push_back({{"name", op.name},
                    {"kind", op.kind},
                    {"gradient", op.gradient},
                    {"operands", op.operands},
                    {"attributes", op.attributes},
                    {"dtypes", op.dtypes},
                    {"kernels", op.kernels},
                    {"samples", op.samples}});
    if (name.empty()) {
      fmt::print("{:<16} {:<10} {:<10} {:<28} {}\n", op.name, op.kind, op.gradient,
                 fmt::format("{}", fmt::join(op.operands, ", ")), fmt::join(op.dtypes, " "));
    } else if (op.name == name) {
      found = true;
      fmt::print(
          "{} ({})\n  operands:   {}\n  attributes: {}\n  gradient:   {}\n  dtypes:     {}\n  kernels:    {}\n  "
          "samples:    {}\n",
          op.name, op.kind, fmt::join(op.operands, ", "),
          op.attributes.empty() ? "none" : fmt::format("{}", fmt::join(op.attributes, ", ")), op.gradient,
          fmt::join(op.dtypes, " "),
          op.kernels.empty() ? "of its expansion" : fmt::format("{}", fmt::join(op.kernels, ", ")), op.samples);
    }
  }
  if (!name.empty() && !found) throw Error(fmt::format("no op is named '{}'", name), "aicf ops lists them");
  write_json(json, rows);
  return kOk;
}

}  // namespace aicf::cli
