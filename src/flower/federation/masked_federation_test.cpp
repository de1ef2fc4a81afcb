// Tests of masked rounds with nodes: the bits of the sum, clients that are lost in each phase, and what is given up.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <set>
#include <thread>

#include "base/format/safetensors.h"
#include "fed/exchange/summed_upload.h"
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
        exchange.on_lost(client.id, "lost");
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

/// A run of clients with rows of their own, of which three begin and a fourth, with ten times as many, comes later.
class JoinedLate : public MaskedFederation {
 protected:
  JoinedLate() {
    change_ = [this, keyed = change_](int64_t node, NodeClientOptions& options) {
      keyed(node, options);
      options.data = {node == 3 ? many_ : few_};
    };
  }

  std::string rows_in(const char* name, int count) const {
    std::string text;
    for (int i = 0; i < count; ++i)
      text += concat(R"({"prompt": "Name )", i, R"(", "completion": "thing )", i % 7, "\"}\n");
    write_file_atomic(folder_.path() / name, text);
    return (folder_.path() / name).string();
  }

  static fed::RunRequest request_of(const fs::path& out, const char* mode, const std::vector<std::string>& files) {
    std::vector<std::string> clients;
    for (const auto& file : files) clients.push_back(concat("{ budget = 1.0, data = [\"", file, "\"] }"));
    auto asked = request("fedit", out,
                         {"threads=1", "train.rounds=1", "data.task=files", "data.limit=0", "evaluate.limit=0",
                          "clients.budgets=[]", "clients.start=3", concat("secure_aggregation.mode=\"", mode, "\""),
                          concat("clients.count=", files.size()), concat("clients.client=[", join(clients), "]")});
    asked.settings.emplace_back("evaluate.tasks=[]");
    return asked;
  }

  int joined() const {
    int count = 0;
    const auto audit = read_file(apart() / "federation" / fed::kAuditFile);
    for (auto at = audit.find("\"kind\":\"join\""); at != audit.npos; at = audit.find("\"kind\":\"join\"", at + 1))
      ++count;
    return count;
  }

  std::string few_ = rows_in("few.jsonl", 16), many_ = rows_in("many.jsonl", 160);
};

TEST_F(JoinedLate, AClientThatJoinsDuringARoundDoesNotChangeTheScaleOfItsSum) {
  std::atomic<bool> training = false;
  admitted_ = [&] { return training.load(); };
  const auto wait_for_the_fourth = [&](Envelope& envelope) {
    if (envelope.kind != kReplyEnvelope) return;
    training = true;
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(5);
    while (joined() < 4 && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
  };
  const auto go_on = [](Envelope&) {};
  local(request_of(here(), "sums", {few_, few_, few_}));
  served(request_of(apart(), "masks", {few_, few_, few_, many_}), {{0, wait_for_the_fourth}, {1, go_on}, {2, go_on}},
         4);
  EXPECT_EQ(joined(), 4);
  EXPECT_EQ(adapter(here()), adapter(apart()));
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

TEST_F(MaskedFederation, AClientThatIsLostOnceTakesPartInTheNextAttemptAtItsRoundAndNobodyTrainsAgain) {
  std::atomic<int> spoiled = 0;
  std::atomic<int64_t> steps = 0;
  change_ = [&, keyed = change_](int64_t node, NodeClientOptions& options) {
    keyed(node, options);
    options.on_progress = [&](const fed::ClientProgress& progress) {
      if (progress.task.empty()) ++steps;
    };
  };
  const auto spoil = [&](Envelope& envelope) {
    if (envelope.kind == kReplyEnvelope && spoiled++ == 0)
      change_report(envelope, [](OrderedJson& report) { report["steps"] = 1000; });
  };
  local(request("fedit", here(), {"threads=1", kSums}));
  served(request("fedit", apart(), {"threads=1", kMasks}), {{1, spoil}});
  EXPECT_EQ(adapter(here()), adapter(apart()));
  EXPECT_EQ(plain(here()), plain(apart()));
  EXPECT_NE(outcomes().find("attempt 1, 3 members"), std::string::npos) << outcomes();
  int64_t needed = 0;
  for (const auto& record : rounds(apart()))
    for (const auto& client : record.clients) needed += client.steps;
  EXPECT_EQ(steps, needed);
}

/// A client whose process is killed once after it stored what it promises, before it sends its answer of a kind.
class KilledInPhase : public MaskedFederation, public ::testing::WithParamInterface<const char*> {};

TEST_P(KilledInPhase, AClientComesBackWithItsKeysAndTheBitsAreTheSame) {
  std::atomic<int> answers = 0;
  const auto kill = [&](Envelope& envelope) {
    if (envelope.kind == GetParam() && answers++ == 0) throw Killed();
  };
  local(request("fedit", here(), {"threads=1", kSums}));
  served(request("fedit", apart(), {"threads=1", kMasks}), {{1, kill}});
  EXPECT_EQ(adapter(here()), adapter(apart()));
  EXPECT_EQ(plain(here()), plain(apart()));
  EXPECT_EQ(outcomes().find("attempt 1"), std::string::npos) << "no attempt was given up:\n" << outcomes();
}
INSTANTIATE_TEST_SUITE_P(Phases, KilledInPhase,
                         ::testing::Values(kMaskKeysEnvelope, kMaskRosterEnvelope, kMaskSharesEnvelope, kReplyEnvelope,
                                           kMaskSurvivorsEnvelope, kUnmaskEnvelope),
                         [](const auto& info) {
                           std::string name(info.param);
                           std::erase(name, '_');
                           return name;
                         });

/// A client that is too slow for the first round, in a phase before training.
class LateInPhase : public MaskedFederation, public ::testing::WithParamInterface<const char*> {};

TEST_P(LateInPhase, ARosterIsMadeWithoutTheClientAndTheNextRoundHasIt) {
  std::atomic<int> answers = 0;
  const auto sleep = [&](Envelope& envelope) {
    if (envelope.kind == GetParam() && answers++ == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1400));
  };
  served(request("fedit", apart(),
                 {"threads=1", kMasks, kFour, kBudgets, "clients.deadline=0.7", "clients.quorum=3", "train.rounds=4"}),
         {{3, sleep}}, 4);
  const auto records = rounds(apart());
  EXPECT_EQ(records.front().secure_aggregation->clients, 3);
  EXPECT_EQ(records.front().lost.value().size(), 1U);
  EXPECT_EQ(records.back().secure_aggregation->clients, 4) << "it is back";
  EXPECT_NE(outcomes().find("attempt 1, 3 members"), std::string::npos) << outcomes();
}
INSTANTIATE_TEST_SUITE_P(Phases, LateInPhase, ::testing::Values(kMaskKeysEnvelope, kMaskRosterEnvelope),
                         [](const auto& info) {
                           std::string name(info.param);
                           std::erase(name, '_');
                           return name;
                         });

TEST_F(MaskedFederation, SixtyFourBitsGiveTheBitsOfSums) {
  constexpr const char* kBits = "secure_aggregation.bits=64";
  local(request("ub-smoe", here(), {"threads=1", kSums, kBits}));
  served(request("ub-smoe", apart(), {"threads=1", kMasks, kBits}));
  EXPECT_EQ(adapter(here()), adapter(apart()));
  EXPECT_EQ(plain(here()), plain(apart()));
}

TEST_F(MaskedFederation, SixteenBitsDifferFromTheSumByOneStepOfEachClientAtMost) {
  constexpr const char *kRange = "secure_aggregation.range=0.125", *kOne = "train.rounds=1";
  local(request("fedit", here(), {"threads=1", kSums, kRange, kOne}));
  served(request("fedit", apart(), {"threads=1", kMasks, kRange, kOne, "secure_aggregation.bits=16"}));
  const auto file = "adapter/adapter_model.safetensors";
  const auto one = load_safetensors(here() / file).tensors, other = load_safetensors(apart() / file).tensors;
  double largest = 0;
  for (const auto& [name, tensor] : one)
    largest = std::max(largest, (tensor.to(at::kDouble) - other.at(name).to(at::kDouble)).abs().max().item<double>());
  EXPECT_GT(largest, 0);
  EXPECT_LE(largest, 3 * 0x1p-17) << "2^17 is the largest power of two at or below (2^15 - 1 - 3) / 0.125";
}

TEST_F(MaskedFederation, FiftyNodesGiveTheBitsOfSums) {
  if (!std::getenv("EVENKEEL_NIGHTLY")) GTEST_SKIP() << "takes a minute: .ci/nightly runs it";
  const auto budgets = concat("clients.budgets=[", join(std::vector<double>(50, 0.5)), "]");
  const auto request_of = [&](const char* mode, const fs::path& out) {
    return request("fedit", out, {"threads=1", mode, "clients.count=50", budgets, "data.limit=150", "train.rounds=1"});
  };
  local(request_of(kSums, here()));
  served(request_of(kMasks, apart()), {}, 50);
  EXPECT_EQ(adapter(here()), adapter(apart()));
  EXPECT_EQ(rounds(apart()).at(0).secure_aggregation->clients, 50);
}

TEST_F(MaskedFederation, AReplyHasStepsTimesAndMaskedBytesAlone) {
  std::mutex mutex;
  std::vector<OrderedJson> reports;
  std::vector<at::Tensor> values;
  std::set<std::string> arrays;
  const auto look = [&](Envelope& envelope) {
    if (envelope.kind != kReplyEnvelope) return;
    const std::scoped_lock lock(mutex);
    reports.push_back(OrderedJson::parse(envelope.header).at("report"));
    const auto payload = lora::decode(envelope.payload_N, "a reply");
    EXPECT_TRUE(payload.adapters.empty() && payload.base_delta.empty());
    for (const auto& [name, tensor] : payload.extras) {
      arrays.insert(name);
      values.push_back(tensor.clone());
    }
  };
  served(request("ub-smoe", apart(), {"threads=1", kMasks}), {{0, look}, {1, look}, {2, look}});
  ASSERT_EQ(reports.size(), 6U);
  for (const auto& report : reports)
    for (const auto& [name, value] : report.items()) {
      const bool is_open = name == "steps" || name == "seconds" || name == "step_seconds";
      EXPECT_TRUE(is_open || value.is_null() || value.empty() || value == 0) << name << ": " << value;
    }
  EXPECT_EQ(arrays, (std::set<std::string>{fed::kSummedValues, fed::kSummedCounts}));
  std::array<double, 256> seen{};
  double bytes = 0;
  for (const auto& tensor : values) {
    const auto whole = tensor.contiguous();
    const auto* first = static_cast<const uint8_t*>(whole.const_data_ptr());
    for (size_t i = 0; i < whole.nbytes(); ++i) seen[first[i]] += 1;
    bytes += static_cast<double>(whole.nbytes());
  }
  double chi_square = 0;
  for (const double count : seen) chi_square += (count - bytes / 256) * (count - bytes / 256) / (bytes / 256);
  EXPECT_LT(chi_square, 255 + 6 * 22.6) << "255 degrees of freedom: mean 255, standard deviation 22.6; " << bytes;
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
