#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "fed/run/memory_estimate.h"
#include "fed/testing.h"

namespace evenkeel::fed {
namespace {

/// Compares whole rounds with LibTorch's operators and with our kernels.
class EngineTest : public testing::SmallRun, public ::testing::WithParamInterface<std::string_view> {
 protected:
  static std::vector<RoundResult> played(std::string_view engine, std::initializer_list<std::string_view> more = {}) {
    auto e = experiment(GetParam(), Purpose::kTrain, engine, more);
    std::vector<RoundResult> results;
    Snapshot now = beginning(e);
    for (int64_t round = 0; round < 2; ++round) {
      RunProgress progress(e.server, now.state.round);
      restore_clients(e.server, e.fabric, now);
      const auto folder = root() / concat(GetParam(), engine.substr(engine.find('=') + 1), more.size(), round);
      results.push_back(run_round(e.server, e.fabric, now, RoundJournal(folder), progress));
      now = results.back().next;
    }
    return results;
  }
};

/// Bounds: both engines compute in float32 in another order, a relative difference of 1e-6 per step, which AdamW
/// amplifies where a gradient is near 0.
TEST_P(EngineTest, ARoundHasTheLossAndCountsOfOurKernels) {
  const auto kernels = played("model.engine='kernels'"), operators = played("model.engine='aten'");
  for (size_t round = 0; round < kernels.size(); ++round) {
    const auto &ours = kernels[round].record, &theirs = operators[round].record;
    EXPECT_NEAR(theirs.loss.value(), ours.loss.value(), 1e-3) << "round " << round;
    EXPECT_EQ(theirs.tokens, ours.tokens);
    EXPECT_EQ(theirs.bytes_up, ours.bytes_up);
    ASSERT_EQ(theirs.clients.size(), ours.clients.size());
    for (size_t c = 0; c < ours.clients.size(); ++c) {
      EXPECT_NEAR(theirs.clients[c].last_loss.value(), ours.clients[c].last_loss.value(), 1e-3) << "client " << c;
      for (const auto& [name, value] : ours.clients[c].metrics)
        EXPECT_NEAR(theirs.clients[c].metrics.at(name), value, 1e-2 * std::max(1.0, std::abs(value))) << name;
    }
  }
}

TEST_P(EngineTest, SkippingIdleExpertsGivesTheLossOfOurKernels) {
  const auto skip = "train.idle_expert_update='skip'";
  const auto kernels = played("model.engine='kernels'", {skip}), operators = played("model.engine='aten'", {skip});
  EXPECT_NEAR(operators.back().record.loss.value(), kernels.back().record.loss.value(), 1e-3);
}

std::vector<std::string_view> every_method() {
  std::vector<std::string_view> names;
  for (const auto& entry : methods::methods()) names.push_back(entry.name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(All, EngineTest, ::testing::ValuesIn(every_method()), [](const auto& info) {
  std::string name(info.param);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

/// Records calls of operators that wait for the device. On a CPU the grouped product, fused AdamW and pow call such
/// operators themselves, which they do not on a GPU, so calls inside them are ignored.
class Waits {
 public:
  Waits()
      : handle_(at::addThreadLocalCallback(
            at::RecordFunctionCallback(&Waits::begin, &Waits::end).scopes({at::RecordScope::FUNCTION}))) {
    seen().clear();
  }
  ~Waits() { at::removeCallback(handle_); }
  Waits(const Waits&) = delete;
  Waits& operator=(const Waits&) = delete;

  static std::vector<std::string>& seen() {
    thread_local std::vector<std::string> names;
    return names;
  }

 private:
  static bool is_loop(std::string_view name) {
    return name == "aten::_grouped_mm" || name == "aten::_fused_adamw_" || name == "aten::pow";
  }
  static int& loops() {
    thread_local int depth = 0;
    return depth;
  }
  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& call) {
    static const std::set<std::string_view> kWaiting{"aten::_local_scalar_dense", "aten::nonzero", "aten::bincount",
                                                     "aten::masked_select",       "aten::equal",   "aten::_unique2"};
    if (is_loop(call.name())) ++loops();
    if (loops() == 0 && kWaiting.contains(call.name())) seen().emplace_back(call.name());
    return nullptr;
  }
  static void end(const at::RecordFunction& call, at::ObserverContext*) {
    if (is_loop(call.name())) --loops();
  }

  at::CallbackHandle handle_;
};

using SyncTest = EngineTest;

TEST_P(SyncTest, StepsDoNotSynchronizeBeforeTheirEnd) {
  if (GetParam() == "fed-sb") GTEST_SKIP() << "begins with a sum of gradients: its steps are fedit's";
  for (const std::string_view idle : {"zero_grad", "skip"}) {
    const auto setting = concat("train.idle_expert_update='", idle, "'");
    auto e = experiment(GetParam(), Purpose::kTrain, "model.engine='aten'", {setting});
    const auto now = beginning(e);
    restore_clients(e.server, e.fabric, now);
    const auto& client = e.server.clients[0];
    const methods::RoundView round{.round = 0, .participants = {client}, .weights = {1.0}};
    const auto sent = e.server.method->broadcast(now.state, client, round);
    TensorMap memory;
    const methods::ClientView view{
        client, e.server.sites, now.state.common, e.server.config->lora, e.server.config->method.gate_norm, 0,
        3,      memory};
    std::vector<std::string> later;
    std::optional<Waits> waits(std::in_place);
    int64_t steps = 0;
    train::train_locally(*e.fabric.context.model, *e.server.method, {sent, view, e.fabric.shards.examples[0]},
                         e.fabric.context.training(), [&](int64_t, int64_t, int64_t) {
                           if (steps++ > 0) later.insert(later.end(), Waits::seen().begin(), Waits::seen().end());
                           Waits::seen().clear();
                         });
    // The recorder sees a waiting operator in this thread, in which the steps ran. A method may wait after the last.
    Waits::seen().clear();
    at::ones({1}).item<float>();
    EXPECT_EQ(Waits::seen(), std::vector<std::string>{"aten::_local_scalar_dense"});
    EXPECT_GT(steps, 1);
    EXPECT_TRUE(later.empty()) << later.size() << " in " << steps << " steps, the first " << later.front();
  }
}
INSTANTIATE_TEST_SUITE_P(All, SyncTest, ::testing::ValuesIn(every_method()), [](const auto& info) {
  std::string name(info.param);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

class ResidenceTest : public testing::SmallRun {};

/// phi is both in extra_trainables and in the router's modulation. The copies must share memory, too.
TEST_F(ResidenceTest, PhiOfTheTrainerSharesMemoryWithTheRouter) {
  auto e = experiment("ub-smoe", Purpose::kTrain, "method.ub-smoe.phi_train='local_fedavg'");
  const auto now = beginning(e);
  restore_clients(e.server, e.fabric, now);
  const auto& client = e.server.clients[0];
  TensorMap memory;
  const methods::ClientView view{
      client, e.server.sites, now.state.common, e.server.config->lora, nn::GateNorm::kRenormSelected, 0, 3, memory};
  const methods::RoundView round{.round = 0, .participants = {client}, .weights = {1.0}};
  const auto setup = e.server.method->prepare(e.server.method->broadcast(now.state, client, round), view);
  ASSERT_FALSE(setup.extra_trainables.empty());
  StorageCopies cloning([](const at::Tensor& bytes_N) { return bytes_N.clone(); });
  const auto there = train::copied(setup, cloning);
  for (const auto& [name, phi_E] : there.extra_trainables) {
    const auto& read_E = there.router.modulation.at(name.substr(0, name.rfind('.')));
    EXPECT_TRUE(read_E.is_same(phi_E)) << name;
    EXPECT_FALSE(read_E.is_alias_of(setup.extra_trainables.at(name))) << name;
  }
}

/// A client with copied tensors must train to identical results. Tensors that all clients share are copied once.
TEST_F(ResidenceTest, ACopiedClientTrainsIdentically) {
  for (const std::string_view method : {"ub-smoe", "ffa-lora", "a3smoe", "fedex-lora", "hetlora"}) {
    const auto setting = method == "a3smoe" ? "method.a3smoe.rescaler='learn'" : "threads=1";
    auto e = experiment(method, Purpose::kTrain, setting);
    const auto now = beginning(e);
    restore_clients(e.server, e.fabric, now);
    const auto& client = e.server.clients[1];
    const methods::RoundView round{.round = 0, .participants = {client}, .weights = {1.0}};
    const auto sent = e.server.method->broadcast(now.state, client, round);
    int64_t copies = 0;
    const StorageCopies cloning([&](const at::Tensor& bytes_N) {
      ++copies;
      return bytes_N.clone();
    });
    std::vector<train::LocalResult> results;
    auto training = e.fabric.context.training();
    for (const bool elsewhere : {false, true}) {
      TensorMap memory;
      const methods::ClientView view{
          client, e.server.sites, now.state.common, e.server.config->lora, e.server.config->method.gate_norm, 0,
          3,      memory};
      if (elsewhere)
        training.residence =
            std::make_shared<train::Residence>(train::make_residence(now.state.common, c10::kCPU, cloning));
      const int64_t of_common = copies;
      results.push_back(train::train_locally(*e.fabric.context.model, *e.server.method,
                                             {sent, view, e.fabric.shards.examples[1]}, training));
      if (method == "ffa-lora" && elsewhere) {
        EXPECT_GT(of_common, 0);
        EXPECT_LE(copies - of_common, static_cast<int64_t>(e.server.sites.size())) << "A was copied again";
      }
    }
    EXPECT_EQ(results[0].loss_sum, results[1].loss_sum) << method;
    testing::expect_same(results[0].upload.adapters, results[1].upload.adapters);
    for (const auto& [name, tensor] : results[0].upload.extras)
      EXPECT_TRUE(at::equal(tensor, results[1].upload.extras.at(name))) << method << ' ' << name;
  }
}

TEST_F(ResidenceTest, IsNullOnTheCpu) {
  auto e = experiment("fedit");
  EXPECT_EQ(e.fabric.context.training().residence, nullptr);
  EXPECT_EQ(e.fabric.context.shared->residence(c10::kCPU), nullptr);
}

TEST_F(ResidenceTest, EstimatesThePackedFactorsOfAllMerges) {
  const auto packed = [&](const std::string& method) {
    const auto plan = device_memory_plan(experiment(method));
    const auto part = std::find_if(plan.parts.begin(), plan.parts.end(), [](const models::MemoryPart& each) {
      return each.what.find("packed") != std::string::npos;
    });
    return part == plan.parts.end() ? 0 : part->bytes;
  };
  EXPECT_GT(packed("fedit"), 0);
  EXPECT_GT(packed("flora"), 2 * packed("fedit")) << "the factors that it merges into the base are packed too";
}

TEST_F(ResidenceTest, EstimatesGpuMemoryFromShapes) {
  auto e = experiment("ub-smoe");
  const auto whole = device_memory_plan(e);
  EXPECT_GT(whole.needed(), models::weight_file_bytes(e.server.model_folder));
  EXPECT_EQ(whole.mapped, 0);
  const machine::Memory small{
      .physical = 1, .available = whole.needed() / 2, .address_space = 1L << 62, .limited_by = "x"};
  EXPECT_EQ(models::verdict(whole, small), models::MemoryVerdict::kTooLarge);
  auto enough = small;
  enough.available = 2 * whole.needed();
  EXPECT_EQ(models::verdict(whole, enough), models::MemoryVerdict::kFits);
  auto wide = experiment("ub-smoe", Purpose::kTrain, "train.batch_size=8");
  EXPECT_GT(device_memory_plan(wide).needed(), whole.needed()) << "four times the rows of a micro-batch";
}

TEST_F(ResidenceTest, EstimatesWhatRecordedPassesHold) {
  const auto plan_of = [&](GraphsChoice graphs) {
    auto e = experiment("ub-smoe");
    e.server.config = e.server.config.with([&](ExperimentConfig& values) { values.model.graphs = graphs; });
    return device_memory_plan(e);
  };
  const auto with = plan_of(GraphsChoice::kOn), without = plan_of(GraphsChoice::kOff);
  const auto part = std::find_if(with.parts.begin(), with.parts.end(), [](const models::MemoryPart& each) {
    return each.what.starts_with("recorded passes");
  });
  ASSERT_NE(part, with.parts.end());
  EXPECT_NE(part->lower.find("--set model.graphs=off"), std::string::npos);
  EXPECT_GE(with.needed(), without.needed() + part->bytes);
}

}  // namespace
}  // namespace evenkeel::fed
