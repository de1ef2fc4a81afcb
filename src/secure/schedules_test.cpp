// Random schedules of one masked round: members leave in any phase, nodes and server are killed and come back, uploads
// come late and twice. Each ends in the sum of the members whose uploads arrived, or in a refusal that names why; and
// no server ever holds enough shares of both kinds of one member.
#include <gtest/gtest.h>

#include <random>

#include "secure/testing.h"

namespace evenkeel::secure {
namespace {

using namespace evenkeel::testing;

/// What the server received, in order, and wrote to its journal before it used it.
struct Journal {
  std::vector<KeysOfMember> keys{};
  std::vector<SharesOfMember> shares{};
  std::vector<std::pair<Place, RingVector>> uploads{};
  bool closed = false;
  std::vector<std::pair<Place, std::string>> signatures{};
  std::vector<std::pair<Place, UnmaskReply>> replies{};

  ServerRound replayed(const RoundContext& context) const {
    ServerRound server(context);
    for (const auto& one : keys) server.take_keys(one, verified);
    for (const auto& one : shares) server.take_shares(one);
    for (const auto& [place, upload] : uploads) server.take_upload(place, upload);
    if (closed) server.close();
    for (const auto& [place, signature] : signatures) server.take_signature(place, signature, verified);
    for (const auto& [place, reply] : replies) server.take_unmask(place, reply);
    return server;
  }
};

/// A member's machine: a process that may be killed, its disk, and its list of rounds.
struct Machine {
  int64_t client = 0;
  ListedRounds summed{};
  std::optional<NodeRound> node{};
  std::optional<NodeAttempt> disk{};
  bool gone = false;
};

class Schedule {
 public:
  explicit Schedule(uint64_t seed) : random_(seed) {
    const int members = 3 + static_cast<int>(random_() % 5);
    for (int i = 0; i < members; ++i) machines_.push_back({.client = 10 + i});
    threshold_ = least_threshold(members);
  }

  /// Runs attempts until one ends in a sum. \return the clients in it. \throws kData when no attempt can
  std::vector<int64_t> run() {
    for (attempt_ = 0; attempt_ < 6; ++attempt_)
      if (auto clients = try_once()) return *clients;
    fail(kData, "six attempts were given up");
  }
  const RingVector& sum() const { return sum_; }

 private:
  static int64_t least_threshold(int members) { return std::max(3, members / 2 + 1); }
  bool chance(int percent) { return static_cast<int>(random_() % 100) < percent; }

  /// A member leaves for good, or its process is killed and comes back from its disk.
  void disturb(Machine& machine) {
    if (chance(6)) machine.gone = true;
    if (!machine.gone && chance(12) && machine.disk) machine.node.emplace(*machine.disk, rules_of(machine.client));
  }
  void disturb_server(std::optional<ServerRound>& server, const Journal& journal, const RoundContext& context) {
    if (chance(15)) server = journal.replayed(context);
  }
  static void save(Machine& machine) { machine.disk = machine.node->attempt(); }

  std::vector<int64_t> present() const {
    std::vector<int64_t> clients;
    for (const auto& machine : machines_)
      if (!machine.gone) clients.push_back(machine.client);
    return clients;
  }
  Machine& machine(const RoundContext& context, Place place) {
    const int64_t client = context.roster[static_cast<size_t>(place)].client;
    return *std::find_if(machines_.begin(), machines_.end(), [&](const Machine& m) { return m.client == client; });
  }

  std::optional<std::vector<int64_t>> try_once() {
    const auto clients = present();
    const auto context =
        context_of(clients, std::max(threshold_, least_threshold(static_cast<int>(clients.size()))), attempt_);
    Journal journal;
    std::optional<ServerRound> server(context);
    for (Place place = 0; place < context.members(); ++place) {
      auto& own = machine(context, place);
      own.node.emplace(context, rules_of(own.client), own.summed);  // throws for rosters that are too small
      save(own);
    }
    if (!keys(context, journal, server) || !shares(context, journal, server)) return {};
    train(context, journal, server);
    try {
      server->close();
    } catch (const Error&) {
      return {};
    }
    journal.closed = true;
    sign(context, journal, server);
    if (!server->has_enough_signatures()) return {};
    unmask(context, journal, server);
    expect_one_kind(context, journal);
    sum_ = server->sum();  // throws where too few answered; no further attempt is possible then
    std::vector<int64_t> summed;
    for (Place place = 0; place < context.members(); ++place)
      if (server->close()[static_cast<size_t>(place)]) summed.push_back(machine(context, place).client);
    return summed;
  }

  bool keys(const RoundContext& context, Journal& journal, std::optional<ServerRound>& server) {
    for (Place place = 0; place < context.members(); ++place) {
      auto& own = machine(context, place);
      disturb(own);
      if (own.gone) return false;
      journal.keys.push_back(own.node->keys(signer_of(own.client)));
      server->take_keys(journal.keys.back(), verified);
      disturb_server(server, journal, context);
    }
    return true;
  }

  bool shares(const RoundContext& context, Journal& journal, std::optional<ServerRound>& server) {
    for (Place place = 0; place < context.members(); ++place) {
      auto& own = machine(context, place);
      disturb(own);
      if (own.gone) return false;
      journal.shares.push_back(own.node->take_keys(server->all_keys(), verified));
      save(own);
      server->take_shares(journal.shares.back());
      disturb_server(server, journal, context);
    }
    return true;
  }

  void train(const RoundContext& context, Journal& journal, std::optional<ServerRound>& server) {
    for (Place place = 0; place < context.members(); ++place) {
      auto& own = machine(context, place);
      disturb(own);
      if (own.gone) continue;
      own.node->take_shares(server->inbox_of(place));
      auto summand = summand_of(own.client);
      own.node->mask(summand);
      save(own);
      if (chance(10)) continue;  // it comes too late
      for (int times = chance(20) ? 2 : 1; times > 0; --times)
        if (server->take_upload(place, summand)) journal.uploads.emplace_back(place, summand);
      disturb_server(server, journal, context);
    }
  }

  void sign(const RoundContext& context, Journal& journal, std::optional<ServerRound>& server) {
    for (Place place = 0; place < context.members(); ++place) {
      auto& own = machine(context, place);
      disturb(own);
      if (own.gone || !server->close()[static_cast<size_t>(place)]) continue;
      journal.signatures.emplace_back(place, own.node->sign(server->close(), signer_of(own.client)));
      save(own);
      server->take_signature(place, journal.signatures.back().second, verified);
      late_upload(context, server);
      disturb_server(server, journal, context);
    }
  }

  void late_upload(const RoundContext& context, std::optional<ServerRound>& server) {
    const auto place = static_cast<Place>(random_() % static_cast<uint64_t>(context.members()));
    EXPECT_FALSE(server->take_upload(place, summand_of(99)));
  }

  void unmask(const RoundContext& context, Journal& journal, std::optional<ServerRound>& server) {
    const auto request = server->unmask_request();
    for (Place place = 0; place < context.members(); ++place) {
      auto& own = machine(context, place);
      disturb(own);
      if (own.gone || !server->close()[static_cast<size_t>(place)]) continue;
      if (!own.node->attempt().signed_set) continue;
      journal.replies.emplace_back(place, own.node->unmask(request, verified, own.summed));
      server->take_unmask(place, journal.replies.back().second);
      late_upload(context, server);
      disturb_server(server, journal, context);
    }
  }

  /// Checks that the server holds shares of one kind of each member.
  static void expect_one_kind(const RoundContext& context, const Journal& journal) {
    for (Place of = 0; of < context.members(); ++of) {
      int64_t seeds = 0, secrets = 0;
      for (const auto& [place, reply] : journal.replies) {
        seeds += static_cast<int64_t>(reply.seeds.contains(of));
        secrets += static_cast<int64_t>(reply.secrets.contains(of));
      }
      EXPECT_TRUE(seeds == 0 || secrets == 0) << of;
    }
  }

  std::mt19937_64 random_;
  std::vector<Machine> machines_{};
  int64_t threshold_ = 3;
  int64_t attempt_ = 0;
  RingVector sum_{};
};

TEST(ScheduleTest, AThousandRandomSchedulesEndInTheRightSumOrANamedRefusal) {
  int sums = 0, refusals = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    Schedule schedule(seed);
    std::vector<int64_t> clients;
    const auto why = refusal([&] { clients = schedule.run(); });
    if (why == "no error") {
      ++sums;
      ASSERT_TRUE(same(schedule.sum(), sum_of(clients))) << "seed " << seed;
      ASSERT_GE(clients.size(), 3U);
    } else {
      ++refusals;
      const bool named = why.find("a roster of") != std::string::npos ||
                         why.find("a threshold of") != std::string::npos ||
                         why.find("helped to take the masks off") != std::string::npos ||
                         why.find("spent") != std::string::npos || why.find("six attempts") != std::string::npos;
      ASSERT_TRUE(named) << "seed " << seed << ": " << why;
    }
  }
  EXPECT_GT(sums, 500);
  EXPECT_GT(refusals, 50);
}

}  // namespace
}  // namespace evenkeel::secure
