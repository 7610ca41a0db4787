// Cases L1 to L4: what a checkpoint leaves out, changes on the way, or restores in the wrong order. The class: every
// optimizer, precision and mode, saved in the middle and continued in a new process, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "aicf/checkpoint.h"
#include "io/files.h"
#include "support/child.h"
#include "support/programs.h"

namespace aicf {
namespace {

using test::child_task;
using test::error_of;
using test::run_child;
using tests::TempFolder;

Tensor scalar(double value, DType dtype = f32) {
  Tensor t(TensorType{dtype, {}});
  set_element(dtype, t.data(), 0, value);
  return t;
}

Tensor* find(NamedTensors& tensors, const std::string& name) {
  const auto it = std::find_if(tensors.begin(), tensors.end(), [&](const auto& t) { return t.first == name; });
  return it == tensors.end() ? nullptr : &it->second;
}

void remove(NamedTensors& tensors, const std::string& name) {
  const size_t before = tensors.size();
  std::erase_if(tensors, [&](const auto& t) { return t.first == name; });
  ASSERT_EQ(tensors.size() + 1, before) << name;
}

// Expects an Error with all the words, and not a bit changed.
void refuses(Program& program, const Checkpoint& checkpoint, const std::vector<std::string>& words,
             const RestoreOptions& options = {}) {
  const NamedTensors before = program.snapshot();
  const std::optional<LoaderState> at = options.loader ? std::optional(options.loader->state()) : std::nullopt;
  const std::string message = error_of([&] { restore_checkpoint(program, checkpoint, options); });
  for (const std::string& word : words) EXPECT_NE(message.find(word), std::string::npos) << message << " / " << word;
  EXPECT_EQ(program.snapshot(), before) << message;
  if (at) {
    EXPECT_EQ(options.loader->state(), *at) << message;
  }
}

// --- L1 -------------------------------------------------------------------------------------------------------

TEST(L1, BetasAreRestoredAndWhatDerivesFromThemFollows) {
  const auto make = [](test::ScalarModel& m) {
    return compile(m.model, {.loss = m.loss, .optimizer = optim::Adam{.lr = 0.1}});
  };
  test::ScalarModel m(0);
  Program p = make(m);
  Checkpoint c = take_checkpoint(p);
  for (const auto& [name, value] : std::vector<std::pair<std::string, double>>{{"optimizer.beta1", 0.5},
                                                                               {"optimizer.beta2", 0.9},
                                                                               {"w", 0.9},
                                                                               {"optimizer.m/w", 0.5},
                                                                               {"optimizer.v/w", 0.1},
                                                                               {"optimizer.step", 1}}) {
    Tensor* t = find(c.tensors, name);
    ASSERT_NE(t, nullptr) << name;
    set_element(t->dtype(), t->data(), 0, value);
  }
  const Restored restored = restore_checkpoint(p, c);
  // m = .75, v = .19, the corrections 1 - .5² = .75 and 1 - .9² = .19: the step is exactly lr. The betas of the
  // constructor would give 0.85951.
  p.step({{"x", scalar(1)}});
  EXPECT_NEAR(p.read("w").item(), 0.8, 1e-6);  // a few roundings of f32
  std::string told;
  for (const std::string& line : restored.differences) told += line + "\n";
  EXPECT_NE(told.find("optimizer.beta1 is 0.5 as saved, not 0.9"), std::string::npos) << told;
}

TEST(L1, AStateOfTheWrongShapeChangesNothing) {
  for (const auto& [name, optimizer] : test::all_optimizers()) {
    test::SmallMlp m;
    Program p = compile(m.model, {.loss = m.loss, .optimizer = optimizer});
    const Checkpoint good = take_checkpoint(p);
    p.step(test::feeds_of(test::small_mlp_batch(0)));
    for (size_t i = 0; i < good.tensors.size(); ++i) {
      Checkpoint bad = good;
      const TensorType type = bad.tensors[i].second.type();
      bad.tensors[i].second = Tensor(TensorType{type.dtype, {7, 1}});
      refuses(p, bad, {bad.tensors[i].first, to_string(type), "[7,1]"});
      bad.tensors[i].second = Tensor(TensorType{type.dtype == f64 ? f32 : f64, type.shape});
      refuses(p, bad, {bad.tensors[i].first, to_string(type), type.dtype == f64 ? "f32" : "f64"});
    }
  }
}

// --- L2 -------------------------------------------------------------------------------------------------------

struct HalfModel {
  Model model;
  Value loss;
  HalfModel() : model(0) {
    const Value x = model.input("x", {f16, {2}});
    const Value w = model.param("w", {f16, {2}}, Init::value(1));
    loss = sum(cast(w * x, f32));
  }
  Program program() { return compile(model, {.loss = loss, .optimizer = optim::Adam{.lr = 0.1}}); }
};

const std::vector<float> kMoments = {0.1f, 1e-8f};

TEST(L2, ChildReadsTheMoments) {
  if (child_task().empty()) return;
  HalfModel m;
  Program p = m.program();
  load_checkpoint(p, child_task());
  EXPECT_EQ(p.read("optimizer.m/w"), Tensor::of<float>({2}, kMoments));
}

TEST(L2, StateKeepsItsDtypeBitForBit) {
  const TempFolder folder;
  HalfModel m;
  Program p = m.program();
  ASSERT_EQ(p.type("w").dtype, f16);
  ASSERT_EQ(p.type("optimizer.m/w").dtype, f32);
  p.write("optimizer.m/w", Tensor::of<float>({2}, kMoments));
  save_checkpoint(p, folder / "c");
  run_child("L2.ChildReadsTheMoments", folder / "c");
}

// --- L3 -------------------------------------------------------------------------------------------------------

struct MasterModel {
  Model model;
  Value loss;
  MasterModel() : model(0) {
    const Value x = model.input("x", {f32, {1, 1}});
    const Value w = model.param("w", {f32, {1, 1}}, Init::value(1));
    loss = sum(matmul(x, w));
  }
  Program program() { return compile(model, {.loss = loss, .optimizer = optim::Adam{.lr = 0.1}, .precision = "bf16"}); }
};

constexpr float kMaster = 1 + 0x1p-12f;

TEST(L3, ChildReadsTheMaster) {
  if (child_task().empty()) return;
  MasterModel m;
  Program p = m.program();
  p.write("w", Tensor::of<float>({1, 1}, {3}));
  load_checkpoint(p, child_task());
  EXPECT_EQ(p.read("w").item(), kMaster);
  EXPECT_EQ(p.read("w.bf16").item(), 1.0) << "refreshed from the master";
}

TEST(L3, TheMastersAreTheTruth) {
  const TempFolder folder;
  MasterModel m;
  Program p = m.program();
  p.write("w", Tensor::of<float>({1, 1}, {kMaster}));
  ASSERT_EQ(p.read("w.bf16").item(), 1.0);
  Checkpoint c = take_checkpoint(p);
  EXPECT_EQ(find(c.tensors, "w.bf16"), nullptr) << "derived: not saved";
  write_checkpoint(folder / "c", c);
  run_child("L3.ChildReadsTheMaster", folder / "c");
  c.tensors.emplace_back("w.bf16", p.read("w.bf16"));
  refuses(p, c, {"w.bf16"});
}

// --- L4 -------------------------------------------------------------------------------------------------------

// Dropout, layer norm, a schedule, groups, a model state with its own update, a derived state, and data in a shuffled
// order that the step count does not divide.
struct Everything {
  static constexpr int64_t kBatch = 4;
  Model model{7};
  Value loss;
  Everything() {
    const Value x = model.input("x", {f32, {kBatch, 6}}), y = model.input("y", {i32, {kBatch}});
    Value h = model.add(nn::LayerNorm(), x, "norm");
    h = dropout(relu(model.add(nn::Linear(9), h, "fc1")), 0.4);
    const Value seen = model.state("seen", {f32, {}}, Init::zeros());
    model.update(seen, seen * 0.9 + mean(x));
    const Value head = model.param("head", {f32, {9, 3}}, Init::normal(0, 0.3), "head");
    model.derived("head.t", transpose(head));
    loss = cross_entropy(matmul(dropout(h, 0.2), head), y);
  }

  static Dataset data() {
    Tensor x(TensorType{f32, {26, 6}}), y(TensorType{i32, {26}});
    for (int64_t i = 0; i < x.elements(); ++i) x.as<float>()[i] = std::sin(static_cast<float>(i * i % 101));
    for (int64_t i = 0; i < 26; ++i) y.as<int32_t>()[i] = static_cast<int32_t>(i % 3);
    return Dataset({{"x", x}, {"y", y}});
  }
  static LoaderOptions order(int64_t micro_batches) { return {.batch = kBatch * micro_batches, .seed = 3}; }
};

struct Way {
  const char* optimizer;
  const char* precision;
  Mode mode;
  // 1, or more with all else that a step may do: a scaled and clipped gradient, a skip, averages.
  int64_t micro_batches;
};

std::vector<Way> ways() {
  std::vector<Way> all;
  for (const int64_t micro_batches : {1, 2}) {
    for (const char* optimizer : {"sgd", "adam", "adamw"}) {
      for (const char* precision : {"f32", "bf16", "f16"}) {
        for (Mode mode : {Mode::graph, Mode::eager}) all.push_back({optimizer, precision, mode, micro_batches});
      }
    }
  }
  return all;
}

Program compile_way(Everything& e, const Way& way) {
  const std::vector<optim::Group> groups = {{.name = "head", .lr = 0.02, .weight_decay = 0.0}};
  const optim::Schedule cosine = optim::Schedule::cosine(10, 3, 0.1);
  optim::Optimizer optimizer =
      optim::SGD{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .schedule = cosine, .groups = groups};
  const std::string name = way.optimizer;
  if (name == "adam") optimizer = optim::Adam{.lr = 0.05, .schedule = cosine, .groups = groups};
  if (name == "adamw") {
    optimizer = optim::AdamW{.lr = 0.05, .schedule = optim::Schedule::table({1, 0.5, 0.25, 0.7}), .groups = groups};
  }
  CompileOptions options = {.loss = e.loss,
                            .optimizer = optimizer,
                            .fetch = {"fc1.weight.grad"},
                            .mode = way.mode,
                            .precision = way.precision};
  if (way.micro_batches > 1) {
    options.micro_batches = way.micro_batches;
    options.scale_loss = true;
    options.loss_scale = {.initial = 1024, .interval = 2};
    options.clip_norm = 0.5;
    options.ema_decay = 0.9;
  }
  return compile(e.model, options);
}

void steps(Program& p, Loader& loader, int count, Tensor& losses, int64_t first) {
  for (int i = 0; i < count; ++i) {
    losses.as<float>()[first + i] = static_cast<float>(p.step(loader.next().feeds).scalar("loss"));
  }
}

// Five steps from WAY:FROM, then all that there is into WAY:FROM.after.
TEST(L4, ChildTakesFiveSteps) {
  if (child_task().empty()) return;
  const std::string task = child_task();
  const std::string from = task.substr(task.find(':') + 1);
  Everything e;
  const Way way = ways()[std::stoul(task)];
  Program p = compile_way(e, way);
  Loader loader(Everything::data(), Everything::order(way.micro_batches));
  const Restored restored = load_checkpoint(p, from, {.loader = &loader});
  EXPECT_EQ(restored.step, 5);
  EXPECT_TRUE(restored.differences.empty()) << restored.differences[0];
  Tensor losses(TensorType{f32, {5}});
  steps(p, loader, 5, losses, 0);
  Checkpoint after = take_checkpoint(p, {.loader = &loader, .notes = restored.notes});
  after.tensors.emplace_back("losses", losses);
  write_checkpoint(from + ".after", after);
}

TEST(L4, TenStepsAreFiveAndFiveInANewProcess) {
  const TempFolder folder;
  const std::vector<Way> all = ways();
  for (size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(std::string(all[i].optimizer) + " " + all[i].precision + " " + std::to_string(all[i].micro_batches));
    Tensor losses(TensorType{f32, {10}}), second(TensorType{f32, {5}});
    Everything e;
    Program p = compile_way(e, all[i]);
    Loader loader(Everything::data(), Everything::order(all[i].micro_batches));
    steps(p, loader, 5, losses, 0);
    const std::string file = folder / std::to_string(i);
    save_checkpoint(p, file, {.loader = &loader, .notes = {{"note", "mine"}}});
    steps(p, loader, 5, losses, 5);
    std::copy_n(losses.as<float>() + 5, 5, second.as<float>());
    Checkpoint straight = take_checkpoint(p, {.loader = &loader, .notes = {{"note", "mine"}}});
    straight.tensors.emplace_back("losses", second);

    run_child("L4.ChildTakesFiveSteps", std::to_string(i) + ":" + file);
    const Checkpoint resumed = read_checkpoint(file + ".after");
    ASSERT_EQ(resumed.tensors.size(), straight.tensors.size());
    for (size_t t = 0; t < resumed.tensors.size(); ++t) {
      EXPECT_EQ(resumed.tensors[t].first, straight.tensors[t].first);
      EXPECT_EQ(resumed.tensors[t].second, straight.tensors[t].second) << resumed.tensors[t].first;
    }
    EXPECT_EQ(resumed, straight) << "step, data position, structure, kernels, notes";
    EXPECT_NE(losses.at(9), losses.at(4));
  }
}

// Whatever is missing is an error that names it, and the same thing waived is not.
TEST(L4, WhatIsMissingIsAnErrorUnlessWaivedByName) {
  Everything e;
  Program p = compile_way(e, ways()[2]);
  Loader loader(Everything::data(), Everything::order(1));
  Tensor losses(TensorType{f32, {5}});
  steps(p, loader, 3, losses, 0);
  const Checkpoint good = take_checkpoint(p, {.loader = &loader});
  steps(p, loader, 2, losses, 3);
  const auto waived = [&](const Checkpoint& c, const std::string& name) {
    refuses(p, c, {}, {.loader = &loader, .waive = {name == "data" ? "rng" : "data"}});
    EXPECT_EQ(error_of([&] { restore_checkpoint(p, c, {.loader = &loader, .waive = {name}}); }), "") << name;
  };
  for (const char* name : {"rng.seed", "rng.offset"}) {
    Checkpoint c = good;
    remove(c.tensors, name);
    refuses(p, c, {name, "missing"}, {.loader = &loader});
    waived(c, "rng");
    waived(c, name);
  }
  for (const char* name : {"steps.applied", "optimizer.step", "optimizer.head.step"}) {
    Checkpoint c = good;
    remove(c.tensors, name);
    refuses(p, c, {name, "missing"}, {.loader = &loader});
    waived(c, "step");
  }
  for (const auto& entry : good.tensors) {
    Checkpoint c = good;
    remove(c.tensors, entry.first);
    refuses(p, c, {entry.first, "missing"}, {.loader = &loader});
    waived(c, entry.first);
  }
  Checkpoint c = good;
  c.step.reset();
  refuses(p, c, {"step", "missing"}, {.loader = &loader});
  waived(c, "step");
  c = good;
  c.data.reset();
  refuses(p, c, {"data position", "missing"}, {.loader = &loader});
  waived(c, "data");
  c = good;
  c.data->examples = 27;
  refuses(p, c, {"26 examples", "of 27"}, {.loader = &loader});
  waived(c, "data");
  c = good;
  c.structure.reset();
  refuses(p, c, {"structure", "missing"}, {.loader = &loader});
  waived(c, "structure");
  c = good;
  c.tensors.emplace_back("nobody", scalar(1));
  refuses(p, c, {"nobody", "no param or state"}, {.loader = &loader});
  waived(c, "nobody");
  refuses(p, good, {"no loader is given"});
  refuses(p, good, {"waive", "rgn"}, {.loader = &loader, .waive = {"rgn"}});

  const LoaderState before = loader.state();
  c = good;
  c.data.reset();
  restore_checkpoint(p, c, {.loader = &loader, .waive = {"data"}});
  EXPECT_EQ(loader.state(), before) << "left where it is";
  restore_checkpoint(p, good, {.loader = &loader});
  EXPECT_EQ(loader.state(), good.data->next);
  EXPECT_EQ(p.snapshot(), good.tensors);
}

// A later version is not damaged: nothing is set aside, and nothing older taken instead.
TEST(L4, ALaterVersionIsLeftAlone) {
  const TempFolder folder;
  Everything e;
  Program p = compile_way(e, ways()[0]);
  CheckpointFolder run(folder / "run");
  run.save(take_checkpoint(p, {.step = 1}));
  run.save(take_checkpoint(p, {.step = 2}));
  const std::string newest = run.files()[0].path;
  Safetensors file = read_safetensors(newest);
  ASSERT_EQ(file.metadata.at("aicf.checkpoint"), "1");
  file.metadata["aicf.checkpoint"] = "2";
  write_safetensors(newest, file.tensors, file.metadata);
  EXPECT_NE(error_of([&] { run.newest(); }).find("expected a checkpoint of version 1"), std::string::npos);
  EXPECT_EQ(run.files()[0].path, newest);
}

// A state of the model's own that only shares the counter's name.
TEST(L4, AStateNamedLikeTheCounterIsNoCounter) {
  for (const TensorType& type : {TensorType{f32, {}}, TensorType{i64, {0}}}) {
    Model model;
    const Value x = model.input("x", {f32, {2}});
    model.state("steps.applied", type, Init::zeros());
    Program p = compile(model, {.outputs = {{"y", x * 2}}});
    EXPECT_EQ(take_checkpoint(p).step, 0);
  }
}

// Another rule for the same tensors, or another graph, is another step; other initial values, outputs, modes and
// switches are not.
TEST(L4, TheStructureIsWhatTheStepDoes) {
  struct Options {
    optim::Optimizer optimizer = optim::Adam{.lr = 0.1};
    double p = 0.5;
    std::string precision = "f32";
    std::vector<std::string> fetch = {};
    bool alias = true;
    double init = 0;
    std::vector<std::string> freeze = {};
  };
  const auto structure = [](const Options& o) {
    Model m;
    const Value x = m.input("x", {f32, {4, 3}});
    const Value w = m.param("w", {f32, {3, 2}}, Init::value(o.init)), b = m.param("b", {f32, {2}});
    const Value h = dropout(matmul(x, w) + b, o.p);
    Program p = compile(m, {.loss = mean(h * h),
                            .optimizer = o.optimizer,
                            .fetch = o.fetch,
                            .precision = o.precision,
                            .freeze = o.freeze,
                            .alias = o.alias});
    return *take_checkpoint(p).structure;
  };
  const uint64_t same = structure({});
  EXPECT_EQ(structure({.optimizer = optim::Adam{.lr = 0.2, .beta1 = 0.5}}), same);
  EXPECT_EQ(structure({.fetch = {"w.grad"}}), same);
  EXPECT_EQ(structure({.alias = false}), same);
  EXPECT_EQ(structure({.init = 1}), same);
  EXPECT_NE(structure({.optimizer = optim::AdamW{.lr = 0.1}}), same);
  EXPECT_NE(structure({.optimizer = optim::Adam{.lr = 0.1, .schedule = optim::Schedule::linear_warmup(3)}}), same);
  EXPECT_NE(structure({.p = 0.25}), same);
  EXPECT_NE(structure({.precision = "bf16"}), same);
  EXPECT_NE(structure({.freeze = {"b"}}), same);
  EXPECT_NE(structure({.optimizer = optim::SGD{.momentum = 0.9}}),
            structure({.optimizer = optim::SGD{.momentum = 0.9, .nesterov = true}}));
}

}  // namespace
}  // namespace aicf
