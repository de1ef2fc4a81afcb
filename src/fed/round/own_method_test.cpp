// Tests rounds of methods that use what no compiled method uses.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "fed/round/payload_check.h"
#include "fed/store/state_file.h"
#include "fed/testing.h"
#include "lora/algebra.h"

namespace evenkeel::fed {
namespace {

class OwnMethod : public testing::SmallRun {
 protected:
  /// Makes an experiment of a compiled method, whose entry and options stay, with another class.
  template <typename Method>
  static Experiment with(std::string_view compiled) {
    auto e = experiment(compiled);
    e.server.method = std::make_unique<Method>();
    e.fabric.context.method = std::make_unique<Method>();
    return e;
  }
  static Snapshot play(const Experiment& e, Fabric& fabric, const Snapshot& now, std::string_view name) {
    RunProgress progress(e.server, now.state.round);
    return run_round(e.server, fabric, now, RoundJournal(root() / name), progress).next;
  }
  /// Runs the round after `now` with all clients.
  static Snapshot play(Experiment& e, const Snapshot& now, std::string_view name) {
    restore_clients(e.server, e.fabric, now);
    return play(e, e.fabric, now, name);
  }
};

/// Remembers a number in the first round, and clears the memory in the second.
class Forgets : public methods::FederatedMethod {
 public:
  lora::Payload upload(const lora::Payload& download, const methods::LocalSetup& setup,
                       const nn::RoutingByLayer& counts, const methods::ClientView& view) const override {
    if (view.round == 0)
      view.memory["number"] = at::full({1}, view.client.id, at::kLong);
    else
      view.memory.clear();
    return FederatedMethod::upload(download, setup, counts, view);
  }
};

/// A fabric that loses client 1.
class WithoutClient1 : public Fabric {
 public:
  explicit WithoutClient1(Fabric& fabric) : fabric_(fabric) {}
  void announce(std::span<const methods::ClientProfile> to, const StateUpdate& news) override {
    fabric_.announce(to, news);
  }
  void exchange(std::span<const methods::ClientProfile> to, const Exchange& exchange) override {
    std::vector<methods::ClientProfile> there(to.begin(), to.end());
    std::erase_if(there, [](const methods::ClientProfile& client) { return client.id == 1; });
    if (there.size() < to.size()) exchange.on_lost(1, "its node burned down");
    fabric_.exchange(there, exchange);
  }

 private:
  Fabric& fabric_;
};

TEST_F(OwnMethod, AClearedMemoryStaysClearedAndALostClientKeepsItsOwn) {
  auto e = with<Forgets>("fedit");
  const auto first = play(e, beginning(e), "remembers");
  ASSERT_EQ(first.memories.size(), 3u);
  EXPECT_EQ(first.memories.at(2).at("number").item<int64_t>(), 2);
  EXPECT_TRUE(play(e, first, "forgets").memories.empty());
  EXPECT_TRUE(play(e, first, "forgets").memories.empty()) << "from the journal";
  restore_clients(e.server, e.fabric, first);
  WithoutClient1 fabric(e.fabric);
  const auto memories = play(e, fabric, first, "loses").memories;
  ASSERT_EQ(memories.size(), 1u);
  EXPECT_EQ(memories.at(1).at("number").item<int64_t>(), 1);
}

/// Moves the adapter into the base after the first round, and then returns the state that it gets. Its broadcast does
/// not send the change.
class MergesOnce : public methods::FederatedMethod {
 public:
  lora::Payload broadcast(const methods::ServerState& state, const methods::ClientProfile&,
                          const methods::RoundView&) const override {
    return {.adapters = state.global.adapters};
  }
  methods::ServerState aggregate(const methods::ServerView& server, const methods::ServerState& state,
                                 const methods::RoundView& round, const methods::Uploads& uploads) const override {
    if (state.round > 0) return state;
    auto next = FederatedMethod::aggregate(server, state, round, uploads);
    for (auto& [site, factors] : next.global.adapters) {
      next.global.base_delta[site] = lora::weighted(factors, 1.0);
      factors.b = at::zeros_like(factors.b);
    }
    return next;
  }
};

TEST_F(OwnMethod, AChangeOfTheBaseOfOneRoundIsSentToAllAndMergedOnce) {
  auto e = with<MergesOnce>("fedex-lora");
  const auto first = play(e, beginning(e), "merges");
  ASSERT_FALSE(first.state.global.base_delta.empty());
  const auto task = e.server.training_task(first.state, e.server.clients[1], e.server.draw(first.state));
  testing::expect_same(lora::decode(task.payload.bytes, "a task").base_delta, first.state.global.base_delta);
  const auto second = play(e, first, "merges-not");
  EXPECT_TRUE(second.state.global.base_delta.empty());
  testing::expect_same(second.state.common.base_change, first.state.common.base_change);
  testing::expect_same(e.fabric.context.shared->common().base_change, first.state.common.base_change);
}

TEST_F(OwnMethod, AChangeOfTheBaseThatTheEntryDoesNotAnnounceIsRefused) {
  auto e = with<MergesOnce>("fedit");
  EXPECT_NE(testing::refusal([&] {
              play(e, beginning(e), "unsaid");
            }).find("method fedit changes the base, and its changes_base is false"),
            std::string::npos);
}

/// Sends a change of the base that the server has not made.
class SendsAnother : public methods::FederatedMethod {
 public:
  lora::Payload broadcast(const methods::ServerState& state, const methods::ClientProfile&,
                          const methods::RoundView&) const override {
    return {.adapters = state.global.adapters, .base_delta = state.global.adapters};
  }
};

TEST_F(OwnMethod, AChangeOfTheBaseThatTheServerHasNotMadeIsNotSent) {
  auto e = with<SendsAnother>("fedex-lora");
  EXPECT_NE(testing::refusal([&] { play(e, beginning(e), "another"); }).find("sends a change of the base at "),
            std::string::npos);
}

constexpr auto kAttention = lora::SiteRole::kAttention;

/// Adapts the attention alone.
class AdaptsAttention : public methods::FederatedMethod {
 public:
  methods::ServerState initialize(const methods::ServerView& server) const override {
    auto state = FederatedMethod::initialize(server);
    std::erase_if(state.global.adapters,
                  [&](const auto& entry) { return server.sites.at(entry.first).role != kAttention; });
    return state;
  }
};

TEST_F(OwnMethod, ARunThatLeavesSitesOutGoesOnFromItsState) {
  auto e = with<AdaptsAttention>("fedit");
  const auto first = play(e, beginning(e), "attention-1");
  for (const auto& [name, site] : e.server.sites) {
    EXPECT_EQ(first.state.global.adapters.contains(name), site.role == kAttention) << name;
    EXPECT_EQ(first.state.unadapted.contains(name), site.role != kAttention) << name;
  }
  save_state(root() / "attention.state", first.state);
  const auto read = load_state(root() / "attention.state", 1);
  EXPECT_EQ(testing::refusal([&] { check_state(read, e.server.sites, "state"); }), "no error");
  const auto next = play(e, first, "attention-2").state;
  testing::expect_same(play(e, {.state = read}, "attention-2-again").state, next);
}

/// Returns a state whose factors no run can go on with.
class LosesB : public methods::FederatedMethod {
 public:
  methods::ServerState aggregate(const methods::ServerView& server, const methods::ServerState& state,
                                 const methods::RoundView& round, const methods::Uploads& uploads) const override {
    auto next = FederatedMethod::aggregate(server, state, round, uploads);
    next.global.adapters.begin()->second.b = at::Tensor();
    return next;
  }
};

TEST_F(OwnMethod, AStateThatNoRunCouldGoOnFromIsRefusedBeforeItsCommit) {
  auto e = with<LosesB>("fedit");
  const auto said = testing::refusal([&] { play(e, beginning(e), "incomplete"); });
  EXPECT_TRUE(said.starts_with("[checkpoint]") && said.ends_with(" are missing")) << said;
}

/// Sends one number for each adapted weight.
class SendsNorms : public methods::FederatedMethod {
 public:
  lora::Payload upload(const lora::Payload& download, const methods::LocalSetup& setup,
                       const nn::RoutingByLayer& counts, const methods::ClientView& view) const override {
    auto payload = FederatedMethod::upload(download, setup, counts, view);
    std::vector<at::Tensor> norms;
    for (const auto& [site, factors] : payload.adapters) norms.push_back(factors.a.norm());
    payload.extras["model.norms"] = at::stack(norms);
    return payload;
  }
};

TEST_F(OwnMethod, AnExtraOfAllSitesIsExpectedAsTheClientSendsIt) {
  methods::add_method(methods::method_entry<SendsNorms>({.name = "sends-norms",
                                                         .title = "Norms",
                                                         .paper = "none",
                                                         .family = methods::MethodFamily::kHomogeneous,
                                                         .exact = false,
                                                         .needs_experts = false}));
  auto e = experiment("sends-norms");
  const auto begun = beginning(e);
  const auto round = e.server.draw(begun.state);
  e.fabric.exchange(round.participants,
                    {.task_of = [&](const auto& client) { return e.server.training_task(begun.state, client, round); },
                     .on_reply =
                         [&](const Reply& reply) {
                           const auto& client = e.server.clients.at(static_cast<size_t>(reply.client));
                           EXPECT_EQ(
                               testing::refusal([&] { check_training_reply(e.server, begun.state, client, reply); }),
                               "no error");
                         }});
}

}  // namespace
}  // namespace evenkeel::fed
