// aicf verify: every way to run the recipe's step, compared bit for bit.
#include <fmt/format.h>

#include <algorithm>

#include "common.h"

namespace aicf::cli {

int verify(const Options& options, int orders) {
  check_json(options.json);
  Options with_steps = options;
  const int64_t steps = options.steps.value_or(8);
  with_steps.steps.reset();  // the schedule stays the recipe's
  const Recipe recipe = recipe_of(with_steps);
  RecipeModel model = build_model(recipe, micro_batch(recipe));
  Loader loader(load_data(recipe, true),
                {.batch = recipe.train.batch, .seed = static_cast<uint64_t>(recipe.train.seed)});

  std::vector<NamedTensors> batches;
  for (int64_t i = 0; i < steps; ++i) {
    NamedTensors copy;
    for (const Feed& feed : loader.next().feeds) copy.emplace_back(std::string(feed.name), Tensor(feed.tensor));
    batches.push_back(std::move(copy));
  }
  const auto feeds = [&](int step) {
    std::vector<Feed> list;
    for (const auto& [name, tensor] : batches[static_cast<size_t>(step)]) list.push_back({name, tensor});
    return list;
  };

  const CompileOptions compile_with =
      training_options(recipe, model, loader.batches_per_epoch(), compile_options(options, recipe));
  VerifyOptions verify_options;
  verify_options.steps = static_cast<int>(steps);
  verify_options.orders = orders;
  verify_options.seed = static_cast<uint64_t>(recipe.train.seed);
  fmt::print("{}: {} steps, inputs and learning rate changing, against the default program\n", recipe.name, steps);
  nlohmann::json rows = nlohmann::json::array();
  int different = 0;
  for (const VerifyRow& row : aicf::verify(model.model, compile_with, feeds, verify_options)) {
    const bool bounded = row.equal && !row.detail.empty();
    fmt::print("  {:<50} {}\n", row.name, !row.equal ? "DIFFERENT" : bounded ? row.detail : "equal");
    if (!row.equal) {
      fmt::print("      {}\n", row.detail);
      ++different;
    }
    rows.push_back({{"name", row.name}, {"equal", row.equal}, {"detail", row.detail}});
  }
  fmt::print("{}\n", different == 0 ? fmt::format("all {} hold", rows.size())
                                    : fmt::format("{} of {} differ", different, rows.size()));
  write_json(options.json, {{"recipe", recipe.name}, {"steps", steps}, {"rows", rows}});
  return different == 0 ? kOk : kCheckFailed;
}

}  // namespace aicf::cli
