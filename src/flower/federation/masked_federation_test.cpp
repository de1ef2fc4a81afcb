// Tests of masked rounds with nodes: the bits of the sum, clients that are lost in each phase, and what is given up.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>

#include "fed/store/audit.h"
#include "flower/federation/federation_testing.h"

namespace evenkeel::flower {
namespace {

constexpr const char *kMasks = "secure_aggregation.mode=\"masks\"", *kSums = "secure_aggregation.mode=\"sums\"";
constexpr const char *kFour = "clients.count=4", *kBudgets = "clients.budgets=[0.25, 0.5, 1.0, 0.5]";

/// A fabric of this process that loses one client in training.
class Losing : public fed::Fabric {
 public:
  Losing(fed::Fabric& fabric, int64_t lost) : fabric_(fabric), lost_(lost) {}
  void announce(std::span<const methods::ClientProfile> to, const fed::StateUpdate& news) override {
    fabric_.announce(to, news);
  }
  void exchange(std::span<const methods::ClientProfile> to, const fed::Exchange& exchange) override {
    std::vector<methods::ClientProfile> there;
    for (const auto& client : to)
      if (exchange.training && client.id == lost_)
        exchange.on_loss(client.id, "lost");
      else
        there.push_back(client);
    fabric_.exchange(there, exchange);
  }

 private:
  fed::Fabric& fabric_;
  int64_t lost_;
};

class MaskedFederation : public Federation {
 protected:
  MaskedFederation() {
    change_ = [this](int64_t node, NodeClientOptions& options) { options.masking.key = key(node); };
  }

  fs::path here() const { return folder_.path() / "here"; }
  fs::path apart() const { return folder_.path() / "apart"; }

  /// Returns the adapter of a run.
  static std::string adapter(const fs::path& run) { return sha256_file(run / "adapter/adapter_model.safetensors"); }

  /// Returns the records of a run without what says how uploads were hidden.
  static std::vector<OrderedJson> plain(const fs::path& run) {
    std::vector<OrderedJson> records;
    for (const auto& record : rounds(run)) records.push_back(testing::without_seconds(record));
    for (auto& record : records) record.erase("secure_aggregation");
    return records;
  }

  /// Returns the outcomes of the events of masked rounds.
  std::string outcomes() const {
    std::string text;
    fed::read_audit(apart() / "federation" / fed::kAuditFile, [&](const fed::AuditLine& line) {
      if (line.event.kind == fed::AuditKind::kMasked) text += line.event.outcome + "\n";
    });
    return text;
  }

  /// A run of sums in this process, which loses a client in every round's training.
  void local_without(int64_t lost, const fed::RunRequest& request) {
    auto run = fed::begin_run(request);
    Losing fabric(run.experiment.fabric, lost);
    fed::complete_run(run.experiment.server, fabric, run.folder);
  }
};

TEST_F(MaskedFederation, NodesGiveTheBitsOfSumsInOneProcess) {
  for (const auto* method : {"fedit", "ub-smoe"}) {
    const auto here = folder_.path() / concat(method, "-here"), apart = folder_.path() / concat(method, "-apart");
    local(request(method, here, {"threads=1", kSums}));
    served(request(method, apart, {"threads=1", kMasks}));
    over_ = false;
    EXPECT_EQ(adapter(here), adapter(apart)) << method;
    EXPECT_EQ(plain(here), plain(apart)) << method;
    for (const auto& record : rounds(apart)) {
      EXPECT_EQ(record.secure_aggregation->mode, fed::SecureMode::kMasks);
      EXPECT_FALSE(record.secure_aggregation->simulated);
      EXPECT_EQ(record.secure_aggregation->clients, 3);
    }
  }
}

TEST_F(MaskedFederation, AClientLostInTrainingIsRecoveredFromTheSharesOfTheOthers) {
  const auto spoil = [](Envelope& envelope) {
    change_report(envelope, [](OrderedJson& report) { report["steps"] = 1000; });
  };
  served(request("fedit", apart(), {"threads=1", kMasks, kFour, kBudgets}), {{3, spoil}}, 4);
  const int64_t lost = rounds(apart()).at(0).lost.value().at(0).id;  // nodes become clients in order of arrival
  local_without(lost, request("fedit", here(), {"threads=1", kSums, kFour, kBudgets}));
  EXPECT_EQ(adapter(here()), adapter(apart()));
  for (const auto& record : rounds(apart())) {
    ASSERT_TRUE(record.lost && record.lost->size() == 1);
    EXPECT_EQ(record.lost->front().id, lost);
    EXPECT_EQ(record.secure_aggregation->clients, 3);
  }
  EXPECT_NE(outcomes().find("attempt 0, 4 members, threshold 3: the sum of 3 uploads is unmasked"), std::string::npos)
      << outcomes();
}

/// Clients that are lost in a phase: its kind.
class LostInPhase : public MaskedFederation, public ::testing::WithParamInterface<const char*> {};

TEST_P(LostInPhase, BeforeTrainingAClientLeavesTheRosterAndLaterItIsNotNeeded) {
  const std::string_view kind = GetParam();
  const auto spoil = [kind](Envelope& envelope) {
    if (envelope.kind == kind) envelope.header = R"({"nonsense": 1})";
  };
  served(request("fedit", apart(), {"threads=1", kMasks, kFour, kBudgets}), {{2, spoil}}, 4);
  const bool early = kind == kMaskKeysEnvelope || kind == kMaskRosterEnvelope;
  const bool late = kind == kMaskSurvivorsEnvelope || kind == kUnmaskEnvelope;
  for (const auto& record : rounds(apart())) {
    EXPECT_EQ(record.secure_aggregation->clients, late ? 4 : 3);
    EXPECT_EQ(record.lost.has_value(), !late);
  }
  EXPECT_EQ(outcomes().find("attempt 1, 3 members") != std::string::npos, early) << outcomes();
  if (late) {
    local(request("fedit", here(), {"threads=1", kSums, kFour, kBudgets}));
    EXPECT_EQ(adapter(here()), adapter(apart()));
  }
}
INSTANTIATE_TEST_SUITE_P(Phases, LostInPhase,
                         ::testing::Values(kMaskKeysEnvelope, kMaskRosterEnvelope, kMaskSharesEnvelope,
                                           kMaskSurvivorsEnvelope, kUnmaskEnvelope),
                         [](const auto& info) {
                           std::string name(info.param);
                           std::erase(name, '_');
                           return name;
                         });

TEST_F(MaskedFederation, AClientThatIsLostOnceTakesPartInTheNextAttemptAtItsRound) {
  std::atomic<int> spoiled = 0;
  const auto spoil = [&](Envelope& envelope) {
    if (envelope.kind == kReplyEnvelope && spoiled++ == 0)
      change_report(envelope, [](OrderedJson& report) { report["steps"] = 1000; });
  };
  local(request("fedit", here(), {"threads=1", kSums}));
  served(request("fedit", apart(), {"threads=1", kMasks}), {{1, spoil}});
  EXPECT_EQ(adapter(here()), adapter(apart()));
  EXPECT_EQ(plain(here()), plain(apart()));
  EXPECT_NE(outcomes().find("attempt 1, 3 members"), std::string::npos) << outcomes();
}

TEST_F(MaskedFederation, AReportWithMeasuresOfTheClientsOwnRowsIsNotTaken) {
  std::atomic<int> sent = 0;
  const auto tell = [&](Envelope& envelope) {
    if (envelope.kind == kReplyEnvelope && sent++ == 0)
      change_report(envelope, [](OrderedJson& report) { report["loss_sum"] = 3.5; });
  };
  served(request("fedit", apart(), {"threads=1", kMasks}), {{1, tell}});
  EXPECT_GT(sent, 2);
  const auto log = read_file(apart() / "federation" / fed::kAuditFile);
  EXPECT_NE(log.find("has measures of the client's own rows beside a hidden upload"), std::string::npos) << log;
}

TEST_F(MaskedFederation, ServeRefusesWhatShowsSingleUploadsOrWhatMasksCannotDo) {
  const auto refused = [&](std::initializer_list<std::string> settings) {
    try {
      served(request("fedit", apart(), settings));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(refused({kSums}).find("secure_aggregation.mode is \"sums\", allowed: off or masks"), std::string::npos);
}

}  // namespace
}  // namespace evenkeel::flower
