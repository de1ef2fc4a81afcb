// Tests simulated time: client profiles, the seconds of a round, lost clients; and that every key has an effect.
#include "fed/round/virtual_clock.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>

#include "base/testing.h"
#include "fed/config/sampling.h"
#include "fed/testing.h"

namespace evenkeel::fed {
namespace {

constexpr std::string_view kPhone = R"([client_profiles.phone]
top_k = [1, 2, 8]
tokens_per_second = [900, 600, 150]
down_mbit = 40
up_mbit = 8
latency = 0.25
)";

/// Returns a config of four clients, all with profile "phone" unless `clients` sets others.
RunConfig with_devices(std::string_view clients, std::string_view devices = kPhone) {
  const auto text = concat("seed = 5\n[clients]\ncount = 4\n", clients, "\n", devices);
  return settle(ExperimentConfig::read(config::Table::parse(text, "test.toml")), {});
}

const std::string kAllPhones = "profiles = { values = [\"phone\"] }\n";

std::string device_complaint(std::string_view clients, std::string_view devices = kPhone) {
  try {
    with_devices(clients, devices);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kConfig);
    return error.what();
  }
  return "accepted";
}

std::vector<methods::ClientProfile> four(std::vector<int64_t> top_k = {1, 2, 4, 8}) {
  std::vector<methods::ClientProfile> clients;
  for (const int64_t k : top_k)
    clients.push_back({.id = static_cast<int64_t>(clients.size()), .budget = 1, .top_k = k, .rank = 3, .examples = 10});
  return clients;
}

ClientRecord replied(int64_t id, int64_t tokens, int64_t bytes_down = 5'000'000, int64_t bytes_up = 1'000'000) {
  ClientRecord record;
  record.id = id;
  record.tokens = tokens;
  record.bytes_down = bytes_down;
  record.bytes_up = bytes_up;
  return record;
}

methods::RoundView everybody(std::vector<methods::ClientProfile> clients = four(), int64_t round = 0) {
  return draw_round(clients, 1.0, 5, round);
}

TEST(MachineProfile, SecondsPerTokenAreInterpolatedBetweenMeasuredTopK) {
  const auto phone = with_devices(kAllPhones)->client_profiles.profiles.at("phone");
  EXPECT_DOUBLE_EQ(phone.seconds_per_token(1), 1.0 / 900);
  EXPECT_DOUBLE_EQ(phone.seconds_per_token(8), 1.0 / 150);
  EXPECT_DOUBLE_EQ(phone.seconds_per_token(5), 0.5 / 600 + 0.5 / 150);
  EXPECT_FALSE(phone.knows(9));
  EXPECT_FALSE(phone.knows(0)) << "a dense model's";
}

TEST(MachineProfile, OneSpeedWithoutTopKAppliesToEveryTopK) {
  const auto any =
      with_devices("profiles = { values = [\"box\"] }", "[client_profiles.box]\ntokens_per_second = [250]\n")
          ->client_profiles.profiles.at("box");
  for (const int64_t k : {0, 1, 8, 64}) {
    EXPECT_TRUE(any.knows(k));
    EXPECT_DOUBLE_EQ(any.seconds_per_token(k), 1.0 / 250);
  }
}

TEST(MachineProfile, FactorsOfClientsFollowDistributionAndSeed) {
  const auto factors = [](Spread spread, uint64_t seed) {
    const MachineProfile profile{.top_k = {}, .tokens_per_second = {1}, .speed_factor = spread, .network_factor = {}};
    std::vector<double> all;
    for (int64_t client = 0; client < 4001; ++client)
      all.push_back(1 / SimulatedMachine("x", profile, seed, client).train(1, 1));
    return all;
  };
  for (const double factor : factors({}, 1)) EXPECT_EQ(factor, 1);
  const Spread uniform{.distribution = SpreadKind::kUniform, .low = 0.5, .high = 2};
  double sum = 0;
  for (const double factor : factors(uniform, 1)) {
    EXPECT_TRUE(factor >= 0.5 && factor < 2 + 1e-9) << factor;
    sum += factor / 4001;
  }
  EXPECT_NEAR(sum, 1.25, 0.03);
  auto drawn = factors({.distribution = SpreadKind::kLogNormal, .sigma = 0.7}, 1);
  EXPECT_EQ(drawn, factors({.distribution = SpreadKind::kLogNormal, .sigma = 0.7}, 1));
  EXPECT_NE(drawn, factors({.distribution = SpreadKind::kLogNormal, .sigma = 0.7}, 2));
  double squares = 0;
  for (const double factor : drawn) squares += std::pow(std::log(factor), 2) / 4001;
  EXPECT_NEAR(std::sqrt(squares), 0.7, 0.03);
  std::sort(drawn.begin(), drawn.end());
  EXPECT_NEAR(drawn[2000], 1, 0.05);
}

TEST(MachineProfile, DropOutsHaveTheProfilesProbabilityAndDifferByRound) {
  const MachineProfile profile{
      .top_k = {}, .tokens_per_second = {1}, .dropout = 0.2, .speed_factor = {}, .network_factor = {}};
  std::vector<int64_t> per_round;
  std::set<std::vector<int64_t>> patterns;
  double all = 0;
  for (int64_t round = 0; round < 50; ++round) {
    std::vector<int64_t> gone;
    for (int64_t client = 0; client < 40; ++client)
      if (SimulatedMachine("x", profile, 3, client).drops_out(round)) gone.push_back(client);
    all += static_cast<double>(gone.size());
    patterns.insert(gone);
  }
  EXPECT_NEAR(all / 2000, 0.2, 0.03);
  EXPECT_GT(patterns.size(), 45u);
}

TEST(Devices, AreGivenByListPatternOrClient) {
  using Names = std::vector<std::string>;
  const auto machines_of = [](const RunConfig& config) {
    Names names;
    for (const auto& plan : config.plans()) names.push_back(plan.machine);
    return names;
  };
  const std::string two = concat(kPhone, "[client_profiles.box]\ntokens_per_second = [5000]\n");
  EXPECT_EQ(machines_of(with_devices("profiles = [\"box\", \"phone\", \"phone\", \"box\"]", two)),
            (Names{"box", "phone", "phone", "box"}));
  EXPECT_EQ(
      machines_of(with_devices("profiles = { values = [\"phone\", \"box\"], shares = [3, 1], deal = \"order\" }", two)),
      (Names{"phone", "phone", "phone", "box"}));
  const auto own =
      with_devices("profiles = { values = [\"phone\"] }\nclient = [{}, {}, { profile = \"box\" }, {}]", two);
  EXPECT_EQ(machines_of(own), (Names{"phone", "phone", "box", "phone"}));
  EXPECT_EQ(machines_of(with_devices("", "")), Names(4)) << "time is not simulated";
}

TEST(Devices, ReadBackEqualFromTheSettledText) {
  for (const auto* clients :
       {"profiles = { values = [\"phone\"] }\ndeadline = 20\nquorum = 3",
        "client = [{profile = \"phone\"}, {profile = \"phone\"}, {profile = \"phone\"}, {profile = "
        "\"phone\"}]"}) {
    const auto text = with_devices(clients)->text();
    EXPECT_EQ(ExperimentConfig::read(config::Table::parse(text, "again.toml")).text(), text);
  }
}

TEST(Devices, ErrorsNameKeyValueAndAllowedValues) {
  const auto says = [](const std::string& line, std::initializer_list<std::string_view> words) {
    for (const auto word : words) EXPECT_NE(line.find(word), std::string::npos) << line << " lacks " << word;
    EXPECT_EQ(line.find('\n'), std::string::npos);
  };
  says(device_complaint("profiles = [\"phone\"]"), {"clients.profiles", "1 entries", "clients.count is 4"});
  says(device_complaint("profiles = { values = [\"fone\"] }"), {"clients.profiles.values", "\"fone\"", "phone"});
  says(device_complaint("profiles = [\"a\", \"a\", \"a\", \"a\"]", ""), {"clients.profiles", "\"a\"", "holds none"});
  says(device_complaint("client = [{profile = \"phone\"}, {}, {}, {}]"), {"client 1 has no profile", "every client"});
  says(device_complaint("client = [{profile = \"x\"}, {}, {}, {}]"), {"clients.client[0].profile", "\"x\"", "phone"});
  says(device_complaint(""), {"clients.profiles is empty", "phone"});
  says(device_complaint("deadline = -1"), {"clients.deadline is -1", "0 or more"});
  says(device_complaint("quorum = 5"), {"clients.quorum is 5", "1 .. 4"});
  says(device_complaint("participation = 0.5\nquorum = 3"), {"clients.quorum is 3", "1 .. 2"});
  const auto phone = [&](std::string_view lines) {
    return device_complaint(kAllPhones, concat("[client_profiles.phone]\n", lines, "\n"));
  };
  says(phone(""), {"client_profiles.phone.tokens_per_second is empty"});
  says(phone("tokens_per_second = [0]"), {"client_profiles.phone.tokens_per_second is 0", "above 0"});
  says(phone("tokens_per_second = [1, 2]"), {"[1, 2]", "as many as top_k has, 1"});
  says(phone("top_k = [2, 1]\ntokens_per_second = [1, 2]"), {"client_profiles.phone.top_k is [2, 1]", "rising"});
  says(phone("tokens_per_second = [1]\ndropout = 1.0"), {"client_profiles.phone.dropout is 1", "less than 1"});
  says(phone("tokens_per_second = [1]\nspeed_factor = { low = 3, high = 2 }"), {"speed_factor.high is 2", "3 or more"});
  says(phone("tokens_per_second = [1]\nup = 3"), {"client_profiles.phone.up", "known", "up_mbit"});
  says(device_complaint(
           kAllPhones,
           "[client_profiles.phone]\ntokens_per_second = [1]\n[client_profiles.\"a b\"]\ntokens_per_second = [1]"),
       {"client_profiles.a b", "letters, digits"});
}

TEST(VirtualClock, SecondsOfARoundFollowBytesTokensAndLatency) {
  const auto config = with_devices(kAllPhones + "\n[client_profiles]\nserver_seconds = 2.0");
  const auto view = everybody();
  RoundClock clock(config, view, {.state = {}, .clock = 100});
  const std::vector<ClientRecord> records{replied(0, 900), replied(1, 600), replied(2, 1200), replied(3, 300)};
  EXPECT_TRUE(clock.close(view, records, false).empty());
  RoundRecord record;
  for (int64_t id = 0; id < 4; ++id) record.clients.emplace_back().id = id;
  clock.add_times(record);
  const auto& first = *record.clients[0].simulated;
  EXPECT_EQ(first.device, "phone");
  EXPECT_DOUBLE_EQ(first.down, 0.25 + 8 * 5.0 / 40);
  EXPECT_DOUBLE_EQ(first.train, 1.0);
  EXPECT_DOUBLE_EQ(first.up, 0.25 + 8 * 1.0 / 8);
  EXPECT_DOUBLE_EQ(first.start, 100);
  EXPECT_DOUBLE_EQ(first.end, 100 + 1.25 + 1 + 1.25);
  const double slowest = 1200 * (4.0 / 6 / 600 + 2.0 / 6 / 150);
  EXPECT_DOUBLE_EQ(record.clients[2].simulated->train, slowest);
  EXPECT_DOUBLE_EQ(record.simulated->took, 2.5 + slowest + 2);
  EXPECT_DOUBLE_EQ(record.simulated->end, 100 + record.simulated->took);
  EXPECT_DOUBLE_EQ(clock.end(), record.simulated->end);
}

TEST(VirtualClock, HasNoTimeWithoutProfiles) {
  const auto config = with_devices("", "");
  const RoundClock clock(config, everybody(), {.state = {}});
  EXPECT_FALSE(clock.runs());
  EXPECT_FALSE(clock.drops_out(2));
  RoundRecord record;
  record.clients.emplace_back();
  clock.add_times(record);
  EXPECT_FALSE(record.simulated || record.clients[0].simulated);
  EXPECT_EQ(clock.end(), 0);
}

/// Seconds of the round and late clients, if clients 0 to 3 take 1, 2, 3 and 4 seconds.
struct Closed {
  double seconds;
  std::vector<int64_t> late;
};
Closed closed(std::string_view clients, bool missing = false) {
  const auto config = with_devices(concat("profiles = { values = [\"box\"] }\n", clients),
                                   "[client_profiles.box]\ntokens_per_second = [100]\n");
  const auto view = everybody();
  RoundClock clock(config, view, {.state = {}});
  std::vector<ClientRecord> records;
  for (int64_t id = 0; id < 4; ++id) records.push_back(replied(id, 100 * (id + 1)));
  Closed result{0, {}};
  for (const auto& lost : clock.close(view, records, missing)) {
    EXPECT_EQ(lost.reason, "late");
    EXPECT_EQ(lost.bytes_down, 5'000'000);
    EXPECT_DOUBLE_EQ(lost.simulated->end, static_cast<double>(lost.id + 1));
    result.late.push_back(lost.id);
  }
  result.seconds = clock.end();
  return result;
}

TEST(VirtualClock, ADeadlineExcludesLateClients) {
  EXPECT_EQ(closed("").late, (std::vector<int64_t>{}));
  EXPECT_DOUBLE_EQ(closed("").seconds, 4);
  EXPECT_EQ(closed("deadline = 2.5").late, (std::vector<int64_t>{2, 3}));
  EXPECT_DOUBLE_EQ(closed("deadline = 2.5").seconds, 2.5);
  EXPECT_EQ(closed("deadline = 2.0").late, (std::vector<int64_t>{2, 3})) << "on the stroke is in time";
  EXPECT_TRUE(closed("deadline = 9").late.empty());
  EXPECT_DOUBLE_EQ(closed("deadline = 9").seconds, 4) << "nobody is waited for";
  EXPECT_DOUBLE_EQ(closed("deadline = 9", true).seconds, 9) << "somebody is missing, and may still come";
  EXPECT_DOUBLE_EQ(closed("", true).seconds, 4) << "without a deadline, who is gone is noticed";
}

TEST(VirtualClock, ADeadlineIsExtendedUntilTheQuorumHasReplied) {
  EXPECT_DOUBLE_EQ(closed("deadline = 0.5").seconds, 1) << "one reply is always needed";
  EXPECT_EQ(closed("deadline = 0.5").late, (std::vector<int64_t>{1, 2, 3}));
  EXPECT_DOUBLE_EQ(closed("deadline = 0.5\nquorum = 3").seconds, 3);
  EXPECT_EQ(closed("deadline = 0.5\nquorum = 3").late, (std::vector<int64_t>{3}));
  EXPECT_DOUBLE_EQ(closed("deadline = 3.5\nquorum = 3").seconds, 3.5);
}

TEST(VirtualClock, TransfersBeforeTheFirstRoundTakeTime) {
  const auto config = with_devices(kAllPhones);
  const auto view = everybody();
  const OtherTraffic opening{.down = {{"fixed_factors", 4 * 5'000'000}}, .up = {{"gradient_sums", 4 * 1'000'000}}};
  RoundClock clock(config, view, {.state = {}, .opening = opening});
  clock.close(view, std::vector{replied(0, 900), replied(1, 0), replied(2, 0), replied(3, 0)}, false);
  EXPECT_DOUBLE_EQ(clock.end(), (0.25 + 1) + (0.25 + 1) + (1.25 + 1 + 1.25));
}

TEST(VirtualClock, TopKOutsideTheMeasuredRangeIsRefusedBeforeTheRun) {
  const auto config = with_devices(kAllPhones);
  check_machines(config, four());
  try {
    check_machines(config, four({1, 2, 9, 8}));
    FAIL() << "K = 9 was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "[config] client_profiles.phone.top_k is [1, 2, 8], but client 2 trains with 9 experts "
              "per token, allowed: those measured and what lies between");
  }
}

TEST(VirtualClock, AQuorumThatDropOutsMakeUnreachableIsRefusedBeforeTheRun) {
  const auto often = concat(kPhone, "dropout = 0.6\n");
  check_machines(with_devices(kAllPhones + "quorum = 4\n"), four());
  try {
    check_machines(with_devices(kAllPhones + "quorum = 4\n", often), four());
    FAIL() << "somebody drops out";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("of 4 clients would not drop out, clients.quorum is 4"), std::string::npos)
        << error.what();
  }
}

// --- whole runs ---

class SimulatedRun : public testing::SmallRun {
 protected:
  static constexpr std::string_view kFast =
      "client_profiles.fast={ tokens_per_second = [4000], down_mbit = 8, up_mbit = 2 }";
  static constexpr std::string_view kSlow = "client_profiles.slow={ tokens_per_second = [50], latency = 0.5 }";

  /// Runs `rounds` rounds, from the first round's journal or a new one.
  static std::vector<RoundResult> play(Experiment& e, std::string_view name, int64_t rounds = 2) {
    std::vector<RoundResult> all;
    Snapshot now = before_first_round(e.server, e.fabric);
    for (int64_t t = 0; t < rounds; ++t) {
      RunProgress progress(e.server, t);
      restore_clients(e.server, e.fabric, now);
      all.push_back(run_round(e.server, e.fabric, now, RoundJournal(root() / name / std::to_string(t)), progress));
      now = all.back().next;
    }
    return all;
  }
  static OrderedJson told(const RoundResult& result) { return testing::without_seconds(result.record); }
};

TEST_F(SimulatedRun, ProfilesChangeOnlySimulatedTime) {
  auto plain = experiment("ub-smoe");
  auto timed =
      experiment("ub-smoe", Purpose::kTrain, kFast, {kSlow, "clients.profiles=[\"fast\", \"slow\", \"fast\"]"});
  const auto without = play(plain, "plain"), with = play(timed, "timed");
  for (size_t t = 0; t < 2; ++t) {
    testing::expect_same(with[t].next.state, without[t].next.state);
    EXPECT_FALSE(told(without[t]).contains("simulated"));
    auto record = with[t].record;
    ASSERT_TRUE(record.simulated);
    EXPECT_DOUBLE_EQ(record.clients[1].simulated->train, static_cast<double>(record.clients[1].tokens) / 50);
    EXPECT_DOUBLE_EQ(record.clients[0].simulated->down, 8e-6 * static_cast<double>(record.clients[0].bytes_down) / 8);
    EXPECT_DOUBLE_EQ(record.clients[2].simulated->up, 8e-6 * static_cast<double>(record.clients[2].bytes_up) / 2);
    EXPECT_DOUBLE_EQ(record.simulated->start, t == 0 ? 0 : with[0].record.simulated->end);
    EXPECT_DOUBLE_EQ(with[t].next.clock, record.simulated->end);
    EXPECT_GT(record.seconds.round, 0);
    record.simulated.reset();
    for (auto& client : record.clients) client.simulated.reset();
    EXPECT_EQ(testing::without_seconds(record), told(without[t]));
  }
}

TEST_F(SimulatedRun, LateClientsAreExcludedButTheirDownloadsCount) {
  auto e = experiment("ub-smoe", Purpose::kTrain, kFast,
                      {kSlow, "clients.profiles=[\"fast\", \"slow\", \"fast\"]", "clients.deadline=8"});
  const auto begun = beginning(e);
  const auto result = play(e, "late", 1)[0];
  ASSERT_TRUE(result.record.lost);
  ASSERT_EQ(result.record.lost->size(), 1u);
  const auto& late = result.record.lost->at(0);
  EXPECT_EQ(late.id, 1);
  EXPECT_EQ(late.reason, "late");
  EXPECT_GT(late.simulated->end, 8);
  EXPECT_EQ(result.record.bytes_down_parts.at("tasks_of_lost"), late.bytes_down);
  EXPECT_DOUBLE_EQ(result.record.simulated->took, 8);
  ASSERT_EQ(result.record.clients.size(), 2u);
  const auto others = without(e.server.draw(begun.state), std::array<int64_t, 1>{1});
  std::vector<methods::ClientUpdate> updates;
  for (const auto& client : others.participants) updates.push_back(RoundJournal(root() / "late" / "0").update(client));
  testing::expect_same(result.next.state, e.server.aggregate(begun.state, others, updates));
  EXPECT_FALSE(result.next.memories.contains(1)) << "it keeps nothing of a round that it is no part of";
}

TEST_F(SimulatedRun, ClientsThatDropOutAreNotTrained) {
  auto e = experiment("fedit", Purpose::kTrain, "client_profiles.fast={ tokens_per_second = [4000], dropout = 0.4 }",
                      {"clients.profiles=[\"fast\", \"fast\", \"fast\"]", "clients.deadline=300"});
  std::vector<int64_t> gone;
  const auto rounds = play(e, "dropped");
  for (size_t t = 0; t < rounds.size(); ++t) {
    if (!rounds[t].record.lost) continue;
    EXPECT_DOUBLE_EQ(rounds[t].record.simulated->took, 300);
    for (const auto& lost : *rounds[t].record.lost) {
      EXPECT_EQ(lost.reason, "dropped out");
      EXPECT_GT(lost.bytes_down, 0);
      EXPECT_FALSE(lost.simulated);
      EXPECT_FALSE(fs::exists(root() / "dropped" / std::to_string(t) / concat(lost.id, ".upload.safetensors")));
      gone.push_back(lost.id);
    }
  }
  EXPECT_FALSE(gone.empty());
}

TEST_F(SimulatedRun, InterruptionOfARoundWithLossesDoesNotChangeRecords) {
  const auto make = [] {
    return experiment("flora", Purpose::kTrain, "client_profiles.fast={ tokens_per_second = [4000], dropout = 0.3 }",
                      {kSlow, "clients.profiles=[\"fast\", \"slow\", \"fast\"]", "clients.deadline=8"});
  };
  auto e = make();
  const auto whole = play(e, "whole", 1)[0];
  ASSERT_TRUE(whole.record.lost);
  fs::copy(root() / "whole", root() / "pieced", fs::copy_options::recursive);
  for (const auto& entry : fs::directory_iterator(root() / "pieced" / "0"))
    if (entry.path().filename().string().starts_with("1.")) fs::remove(entry.path());
  auto again = make();
  const auto pieced = play(again, "pieced", 1)[0];
  EXPECT_EQ(told(pieced), told(whole));
  testing::expect_same(pieced.next.state, whole.next.state);
}

/// A key with a value that the reference run does not have.
struct DeviceOption {
  std::string_view key, value;
  bool loses = false;  ///< true: clients are lost, which changes results; false: only simulated time changes
};

TEST_F(SimulatedRun, EveryKeyOfProfilesChangesTheRecords) {
  constexpr std::string_view kBase =
      "client_profiles.box={ tokens_per_second = [100], top_k = [], down_mbit = 8, up_mbit = 2, speed_factor = { "
      "distribution "
      "= "
      "'log-normal' }, network_factor = { distribution = 'uniform' } }";
  const auto run = [&](std::string_view key, std::string_view value) {
    auto e = experiment("fedit", Purpose::kTrain, kBase,
                        {"data.limit=6", "client_profiles.other={ tokens_per_second = [70] }",
                         "clients.profiles={ values = ['box'] }", concat(key, "=", value)});
    return play(e, concat("option-", key, value), 1)[0];
  };
  const auto reference = run("seed", "3");
  for (const auto& [key, value, loses] : {DeviceOption{"clients.profiles", "['other', 'other', 'other']"},
                                          {"clients.deadline", "1", true},
                                          {"client_profiles.server_seconds", "5"},
                                          {"client_profiles.box.tokens_per_second", "[90]"},
                                          {"client_profiles.box.down_mbit", "4"},
                                          {"client_profiles.box.up_mbit", "1"},
                                          {"client_profiles.box.latency", "0.1"},
                                          {"client_profiles.box.dropout", "0.4", true},
                                          {"client_profiles.box.speed_factor.distribution", "'uniform'"},
                                          {"client_profiles.box.speed_factor.sigma", "0.1"},
                                          {"client_profiles.box.network_factor.distribution", "'none'"},
                                          {"client_profiles.box.network_factor.low", "0.1"},
                                          {"client_profiles.box.network_factor.high", "9"}}) {
    const auto changed = run(key, value);
    EXPECT_NE(changed.record.simulated->end, reference.record.simulated->end) << key;
    EXPECT_EQ(changed.record.lost.has_value(), loses) << key;
    if (!loses) testing::expect_same(changed.next.state, reference.next.state);
  }
  auto waits = experiment("fedit", Purpose::kTrain, kBase,
                          {"clients.profiles={ values = ['box'] }", "clients.deadline=1", "clients.quorum=3"});
  EXPECT_FALSE(play(waits, "quorum", 1)[0].record.lost);
  auto by_k =
      experiment("fedit", Purpose::kTrain, "client_profiles.box={ tokens_per_second = [100, 40], top_k = [1, 4] }",
                 {"clients.profiles={ values = ['box'] }"});
  const auto clients = play(by_k, "by-k", 1)[0].record.clients;
  EXPECT_DOUBLE_EQ(clients[2].simulated->train, static_cast<double>(clients[2].tokens) / 40);
}

}  // namespace
}  // namespace evenkeel::fed
