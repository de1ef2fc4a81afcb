// Random schedules of a server that lies: it begins attempts with other rosters, again and in parallel, repeats keys,
// shares and signatures of earlier ones, and tells each node its own set of uploads. Whatever it does, each node helps
// with one sum of a round, and nobody's upload can be read alone.
#include <gtest/gtest.h>

#include <random>

#include "secure/testing.h"

namespace evenkeel::secure {
namespace {

using namespace evenkeel::testing;

/// What the server was told in all beginnings of one attempt.
struct Heard {
  std::map<Place, std::vector<KeysOfMember>> keys{};
  std::map<Place, std::vector<SharesOfMember>> shares{};
  std::map<Survivors, std::map<Place, std::vector<std::string>>> signatures{};
};

/// Shares that nodes gave, of one secret key pair of a member.
struct Given {
  std::set<int64_t> seeds{}, secrets{};  ///< clients that gave them
  int64_t threshold = 0;
};

class LyingServer {
 public:
  explicit LyingServer(uint64_t seed) : random_(seed), members_(3 + static_cast<int>(random_() % 4)) {
    for (int i = 0; i < members_; ++i) nodes_.emplace(10 + i, Node{});
    for (int without = -1; without < members_; ++without)
      for (int64_t attempt = 0; attempt < 2; ++attempt) add_context(without, attempt);
  }

  void run(int messages) {
    for (int i = 0; i < messages; ++i) {
      if (chance(4)) context_ = random_() % contexts_.size();
      const int64_t client = 10 + static_cast<int64_t>(random_() % static_cast<uint64_t>(members_));
      if (const auto place = place_of(client)) say(nodes_.at(client), *place);
    }
  }

  /// Returns how many members' masks could be taken off, after checking what nodes gave.
  int checked() const {
    int open = 0;
    for (const auto& [key, given] : given_) {
      for (const int64_t client : given.seeds) EXPECT_FALSE(given.secrets.contains(client)) << "both kinds";
      const bool has_seed = std::ssize(given.seeds) >= given.threshold,
                 has_secret = std::ssize(given.secrets) >= given.threshold;
      EXPECT_FALSE(has_seed && has_secret) << "an upload can be read";
      open += static_cast<int>(has_seed || has_secret);
    }
    for (const auto& [client, sums] : sums_) EXPECT_LE(sums.size(), 1U) << "client " << client << " helps twice";
    return open;
  }

 private:
  struct Node {
    std::optional<NodeRound> round{};
    ListedRounds summed{};
  };

  void add_context(int without, int64_t attempt) {
    std::vector<int64_t> clients;
    for (int i = 0; i < members_; ++i)
      if (i != without) clients.push_back(10 + i);
    if (clients.size() < 3) return;
    contexts_.push_back(context_of(clients, std::max<int64_t>(3, std::ssize(clients) / 2 + 1), attempt));
    heard_.emplace_back();
  }
  const RoundContext& context() const { return contexts_[context_]; }
  Heard& heard() { return heard_[context_]; }
  bool chance(int percent) { return static_cast<int>(random_() % 100) < percent; }
  template <typename T>
  const T& newest_or_any(const std::vector<T>& all) {
    return chance(95) ? all.back() : all[random_() % all.size()];
  }
  std::optional<Place> place_of(int64_t client) const {
    for (Place place = 0; place < context().members(); ++place)
      if (context().roster[static_cast<size_t>(place)].client == client) return place;
    return {};
  }
  int64_t client(Place place) const { return context().roster[static_cast<size_t>(place)].client; }

  /// Says something of the phase that the node is in, or of any other. Nodes may refuse.
  void say(Node& node, Place place) try {
    if (!node.round || !(node.round->attempt().context == context())) return begin(node, place);
    const auto& attempt = node.round->attempt();
    const int phase = chance(15)            ? static_cast<int>(random_() % 6)
                      : !attempt.shares     ? 1
                      : !attempt.upload     ? 2
                      : !attempt.signed_set ? 3
                                            : 4;
    if (phase == 0) begin(node, place);
    if (phase == 1) roster(node, place);
    if (phase == 2) inbox(node, place);
    if (phase == 3) sign(node, place);
    if (phase >= 4) unmask(node, place);
  } catch (const Error& error) {
    ASSERT_EQ(error.kind(), kData) << error.what();
  }

  void begin(Node& node, Place place) {
    node.round.emplace(NodeRound(context(), rules_of(client(place)), node.summed));
    heard().keys[place].push_back(node.round->keys(signer_of(client(place))));
  }
  void roster(Node& node, Place place) {
    std::vector<KeysOfMember> keys;
    for (const auto& [other, all] : heard().keys) keys.push_back(newest_or_any(all));
    const auto& shares = node.round->take_keys(keys, verified);
    heard().shares[place].push_back(shares);
  }
  void inbox(Node& node, Place place) {
    Inbox inbox;
    for (const auto& [from, all] : heard().shares)
      if (from != place) inbox.boxes[from] = newest_or_any(all).boxes.at(place);
    node.round->take_shares(inbox);
    node.round->mask(summand_of(client(place)));
  }
  Survivors set() {
    Survivors survivors(context().roster.size(), true);
    if (chance(60)) survivors[random_() % survivors.size()] = false;
    return survivors;
  }
  void sign(Node& node, Place place) {
    const auto survivors = set();
    const auto signature = node.round->sign(survivors, signer_of(client(place)));
    heard().signatures[survivors][place].push_back(signature);
  }
  void unmask(Node& node, Place place) {
    UnmaskRequest request{.survivors = chance(90) ? node.round->attempt().signed_set.value_or(set()) : set()};
    for (const auto& [from, all] : heard().signatures[request.survivors]) request.signatures[from] = newest_or_any(all);
    const auto reply = node.round->unmask(request, verified, node.summed);
    EXPECT_TRUE(request.survivors[static_cast<size_t>(place)] && count_of(request.survivors) >= 3);
    sums_[client(place)].insert({digest_of(context()), request.survivors});
    take(node, client(place), reply);
  }
  void take(const Node& node, int64_t from, const UnmaskReply& reply) {
    const auto of = [&](Place place) -> Given& {
      auto& given = given_[node.round->attempt().keys.at(place).mask_public];
      given.threshold = context().threshold;
      return given;
    };
    for (const auto& [place, seed] : reply.seeds) of(place).seeds.insert(from);
    for (const auto& [place, secret] : reply.secrets) of(place).secrets.insert(from);
  }

  std::mt19937_64 random_;
  int members_;
  std::map<int64_t, Node> nodes_{};
  std::vector<RoundContext> contexts_{};
  std::vector<Heard> heard_{};
  size_t context_ = 0;
  std::map<Bytes32, Given> given_{};
  std::map<int64_t, std::set<std::pair<Bytes32, Survivors>>> sums_{};
};

TEST(LyingServerTest, InRandomSchedulesNobodysUploadCanBeReadAlone) {
  int open = 0;
  for (uint64_t seed = 0; seed < 250; ++seed) {
    LyingServer server(seed);
    server.run(120);
    open += server.checked();
    ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed;
  }
  EXPECT_GT(open, 100) << "the server gets no sums: the schedules try nothing";
}

}  // namespace
}  // namespace evenkeel::secure
