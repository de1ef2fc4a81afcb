// The seam between server and clients: every client in a process of its own, which knows what came over its pipe, its
// own rows and its own memory, and replies that come late, twice, in any order or not at all.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <random>
#include <thread>

#include "fed/run/state_evaluation.h"
#include "fed/testing.h"
#include "lora/testing.h"

namespace evenkeel::fed {
namespace {

/// One end of a pair of pipes. Messages go with their length in front.
class Wire {
 public:
  Wire(int in, int out) : in_(in), out_(out) {}
  void send(const at::Tensor& bytes_N) const {
    const int64_t length = bytes_N.numel();
    put(&length, sizeof length);
    put(bytes_N.const_data_ptr(), static_cast<size_t>(length));
  }
  /// Undefined when the other side is gone.
  at::Tensor receive() const {
    int64_t length = 0;
    if (!get(&length, sizeof length)) return {};
    auto bytes_N = at::empty({length}, at::kByte);
    return get(bytes_N.mutable_data_ptr(), static_cast<size_t>(length)) ? bytes_N : at::Tensor{};
  }
  int in() const { return in_; }
  void close() const { ::close(in_), ::close(out_); }

 private:
  void put(const void* data, size_t bytes) const {
    for (const auto* next = static_cast<const char*>(data); bytes > 0;) {
      const auto written = ::write(out_, next, bytes);
      if (written <= 0) throw std::runtime_error("a client is gone");
      next += written, bytes -= static_cast<size_t>(written);
    }
  }
  bool get(void* data, size_t bytes) const {
    for (auto* next = static_cast<char*>(data); bytes > 0;) {
      const auto got = ::read(in_, next, bytes);
      if (got <= 0) return false;
      next += got, bytes -= static_cast<size_t>(got);
    }
    return true;
  }

  int in_, out_;
};

/// What a client's process does until its pipe ends.
[[noreturn]] void serve(LocalFabric& own, const Wire& wire, int64_t delay_us) {
  for (at::Tensor bytes; (bytes = wire.receive()).defined();) {
    const auto message = from_bytes(bytes, "a pipe");
    if (const auto* news = std::get_if<StateUpdate>(&message)) {
      own.announce(own.clients, *news);
      continue;
    }
    const auto& task = std::get<Task>(message);
    own.exchange(std::span(&task.client, 1), {.task_of = [&](const methods::ClientProfile&) { return task; },
                                              .on_reply =
                                                  [&](const Reply& reply) {
                                                    own.memories[reply.client] = reply.memory;
                                                    ::usleep(static_cast<useconds_t>(delay_us));
                                                    wire.send(to_bytes(reply));
                                                  }});
  }
  ::_exit(0);
}

struct Mischief {
  uint64_t seed = 0;
  bool twice = false;        ///< every reply comes a second time, some after all others
  std::set<int64_t> lost{};  ///< who never replies
};

class PipeFabric : public Fabric {
 public:
  /// Forks a process for each client of `origin`, and one that evaluates. Nothing that `origin` learns later reaches
  /// them.
  PipeFabric(LocalFabric& origin, Mischief mischief) : mischief_(std::move(mischief)), random_(mischief_.seed) {
    for (const auto& client : origin.clients) begin(client.id, origin);
    begin(kEvaluator, origin);
  }
  ~PipeFabric() override {
    for (const auto& [id, client] : processes_) client.wire.close();
    for (const auto& [id, client] : processes_) ::waitpid(client.pid, nullptr, 0);
  }

  void announce(std::span<const methods::ClientProfile> to, const StateUpdate& news) override {
    for (const auto& client : to) processes_.at(client.id).wire.send(to_bytes(news));
    processes_.at(kEvaluator).wire.send(to_bytes(news));
  }

  void exchange(std::span<const methods::ClientProfile> to, const Exchange& exchange) override {
    std::vector<methods::ClientProfile> order(to.begin(), to.end());
    std::shuffle(order.begin(), order.end(), random_);
    for (const auto& client : order) {
      ASSERT_TRUE(processes_.contains(client.id)) << "no process holds everybody's rows";
      processes_.at(client.id).wire.send(to_bytes(exchange.task_of(client)));
    }
    std::vector<at::Tensor> replies;
    for (const auto& client : order) {
      const auto bytes = processes_.at(client.id).wire.receive();
      if (!bytes.defined() || mischief_.lost.contains(client.id)) {
        exchange.on_lost(client.id, "its pipe is silent");
        continue;
      }
      replies.push_back(bytes);
      if (mischief_.twice) replies.push_back(bytes);
    }
    std::shuffle(replies.begin(), replies.end(), random_);
    for (const auto& bytes : replies) exchange.on_reply(std::get<Reply>(from_bytes(bytes, "a pipe")));
  }

 private:
  struct Process {
    pid_t pid;
    Wire wire;
  };

  void begin(int64_t id, LocalFabric& origin) {
    int down[2], up[2];
    if (::pipe(down) != 0 || ::pipe(up) != 0) throw std::runtime_error("no pipe");
    const auto delay_us = static_cast<int64_t>(random_() % 3000);
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::close(down[1]), ::close(up[0]);
      for (const auto& [other, client] : processes_) client.wire.close();
      for (size_t c = 0; c < origin.shards.examples.size(); ++c)
        if (static_cast<int64_t>(c) != id) origin.shards.examples[c].clear();
      try {
        serve(origin, {down[0], up[1]}, delay_us);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "client %d: %s\n", static_cast<int>(id), error.what());
        ::_exit(1);
      }
    }
    ::close(down[0]), ::close(up[1]);
    processes_.emplace(id, Process{pid, {up[0], down[1]}});
  }

  Mischief mischief_;
  std::mt19937_64 random_;
  std::map<int64_t, Process> processes_;
};

class Seam : public testing::SmallRun, public ::testing::WithParamInterface<std::string_view> {
 protected:
  struct Played {
    std::vector<RoundResult> rounds;
    std::vector<scoring::TaskScore> scores;
  };

  static Experiment made(std::string_view method) {
    return experiment(method, Purpose::kTrain, concat("clients.participation=0.67"),
                      {"method.fed-sb.init=federated", "evaluate.tasks=[\"builtin:sizes\"]",
                       "lora.targets=[\"q_proj\", \"down_proj\"]"});
  }

  /// Two rounds, so that memories, changes of the base and those who sit out matter, and an evaluation.
  static Played play(const Server& server, Fabric& fabric, LocalFabric* local, const fs::path& folder,
                     int64_t rounds = 2) {
    RunProgress progress(server, 0);
    Played played;
    Snapshot now = before_first_round(server, fabric);
    for (int64_t t = 0; t < rounds; ++t) {
      if (local) local->memories = now.memories;
      played.rounds.push_back(run_round(server, fabric, now, RoundJournal(folder / std::to_string(t)), progress));
      auto& next = played.rounds.back().next;
      now = {.state = next.state, .memories = next.memories};
    }
    for (const auto& point : evaluation_points(server, now.state))
      played.scores.push_back(score(server, fabric, now.state, point, {{.task = "builtin:sizes"}}).value().score);
    return played;
  }
};

TEST_P(Seam, ClientsInProcessesOfTheirOwnGiveTheSameBits) {
  auto e = made(GetParam());
  PipeFabric pipes(e.fabric, {.seed = 7, .twice = true});
  const auto apart = play(e.server, pipes, nullptr, root() / concat(GetParam(), "-apart"));
  const auto here = play(e.server, e.fabric, &e.fabric, root() / concat(GetParam(), "-here"));
  for (size_t t = 0; t < here.rounds.size(); ++t) {
    testing::expect_same(apart.rounds[t].next.state, here.rounds[t].next.state);
    EXPECT_EQ(testing::without_seconds(apart.rounds[t].record), testing::without_seconds(here.rounds[t].record));
  }
  ASSERT_EQ(apart.scores.size(), here.scores.size());
  for (size_t i = 0; i < here.scores.size(); ++i) {
    auto one = record::write(apart.scores[i]), other = record::write(here.scores[i]);
    one.erase("seconds"), other.erase("seconds");
    EXPECT_EQ(one, other);
  }
}

TEST_P(Seam, ClientsSideBySideGiveTheSameBits) {
  auto e = made(GetParam());
  const auto alone = play(e.server, e.fabric, &e.fabric, root() / concat(GetParam(), "-alone"));
  e.use(e.server.config.with([](ExperimentConfig& values) { values.clients.parallel = 2; }));
  const auto together = play(e.server, e.fabric, &e.fabric, root() / concat(GetParam(), "-together"));
  for (size_t t = 0; t < alone.rounds.size(); ++t) {
    testing::expect_same(together.rounds[t].next.state, alone.rounds[t].next.state);
    EXPECT_EQ(testing::without_seconds(together.rounds[t].record), testing::without_seconds(alone.rounds[t].record));
  }
}

std::vector<std::string_view> all_methods() {
  std::vector<std::string_view> names;
  for (const auto& entry : methods::methods()) names.push_back(entry.name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(All, Seam, ::testing::ValuesIn(all_methods()), [](const auto& info) {
  std::string name(info.param);
  std::erase(name, '-');
  return name;
});

/// A second place with clients, as a rank of a cluster is: uploads of every other client stay there, and it aggregates
/// what it has while the server does.
class SecondPlace : public Fabric {
 public:
  SecondPlace(const Server& server, LocalFabric& fabric, const fs::path& folder)
      : server_(server),
        fabric_(fabric),
        stored_(folder),
        seats_{testing::Meeting::Seat(meeting_), testing::Meeting::Seat(meeting_)} {}

  void announce(std::span<const methods::ClientProfile> to, const StateUpdate& news) override {
    fabric_.announce(to, news);
  }
  void remember(const ClientMemories& memories) override { fabric_.remember(memories); }
  void exchange(std::span<const methods::ClientProfile> to, const Exchange& exchange) override {
    if (!exchange.training) return fabric_.exchange(to, exchange);
    state_ = exchange.training->state;
    for (const auto& client : to)
      client.id % 2 == 0 ? fabric_.exchange(std::span(&client, 1), exchange) : keep(client, exchange);
  }
  const lora::Reduction& sums(const methods::RoundView& round) override {
    other_process_ = std::jthread([this, round] {
      std::vector<methods::ClientUpdate> updates;
      for (const auto& client : round.participants)
        if (stored_.holds(client.id)) updates.push_back(stored_.update(client));
      server_.aggregate(state_, round, updates, {.others = &seats_[1]});
    });
    return seats_[0];
  }

 private:
  void keep(const methods::ClientProfile& client, const Exchange& exchange) {
    const auto task = server_.training_task(exchange.training->state, client, exchange.training->round);
    fabric_.exchange(std::span(&client, 1), {.task_of = [&](const methods::ClientProfile&) { return task; },
                                             .on_reply =
                                                 [&](Reply reply) {
                                                   ClientRecord record;
                                                   record.id = client.id;
                                                   static_cast<train::LocalReport&>(record) =
                                                       report_of<train::LocalReport>(reply);
                                                   stored_.store(record, reply.upload, {});
                                                   reply.task_size = size_of(task.payload);
                                                   reply.upload = RemoteUpload{size_of(*encoded_payload(reply.upload))};
                                                   exchange.on_reply(reply);
                                                   exchange.on_reply(reply);  // once more: known already
                                                 }});
  }

  const Server& server_;
  LocalFabric& fabric_;
  RoundJournal stored_;
  methods::ServerState state_;
  testing::Meeting meeting_{2};
  std::array<testing::Meeting::Seat, 2> seats_;
  std::jthread other_process_;
};

class Elsewhere : public Seam {};

TEST_P(Elsewhere, UploadsThatStayWhereTheyWereMadeGiveTheSameBits) {
  auto e = experiment(GetParam());
  const auto here = play(e.server, e.fabric, &e.fabric, root() / concat(GetParam(), "-here"), 1).rounds[0];
  e.fabric.remember({});
  SecondPlace second(e.server, e.fabric, root() / concat(GetParam(), "-kept"));
  const auto journal = root() / concat(GetParam(), "-shared");
  const auto shared = play(e.server, second, nullptr, journal, 1).rounds[0];
  testing::expect_same(shared.next.state, here.next.state);
  EXPECT_EQ(testing::without_seconds(shared.record), testing::without_seconds(here.record));
  EXPECT_FALSE(RoundJournal(journal / "0").holds(1));
  EXPECT_TRUE(RoundJournal(journal / "0").holds(2));
}

INSTANTIATE_TEST_SUITE_P(Sums, Elsewhere, ::testing::Values("fedit", "ub-smoe", "a3smoe", "fed-sb"),
                         [](const auto& info) {
                           std::string name(info.param);
                           std::erase(name, '-');
                           return name;
                         });

class Loss : public Seam {};

TEST_F(Loss, OfAClientIsARoundAsIfItHadNotBeenDrawn) {
  auto e = experiment("ub-smoe");
  const auto begun = beginning(e);
  PipeFabric pipes(e.fabric, {.seed = 3, .twice = false, .lost = {1}});
  const auto lossy = play(e.server, pipes, nullptr, root() / "lossy", 1).rounds[0];
  ASSERT_TRUE(lossy.record.lost);
  ASSERT_EQ(lossy.record.lost->size(), 1u);
  EXPECT_EQ(lossy.record.lost->at(0).id, 1);
  EXPECT_FALSE(lossy.record.lost->at(0).reason.empty());
  EXPECT_EQ(lossy.record.bytes_down_parts.at("tasks_of_lost"), lossy.record.lost->at(0).bytes_down);
  ASSERT_EQ(lossy.record.clients.size(), 2u);
  EXPECT_EQ(lossy.record.clients[1].id, 2);
  auto others = e.server.draw(begun.state);
  std::erase_if(others.participants, [](const methods::ClientProfile& client) { return client.id == 1; });
  const double all = others.participants[0].examples + others.participants[1].examples;
  others.weights = {others.participants[0].examples / all, others.participants[1].examples / all};
  std::vector<methods::ClientUpdate> updates;
  for (const auto& client : others.participants) updates.push_back(RoundJournal(root() / "lossy" / "0").update(client));
  testing::expect_same(lossy.next.state, e.server.aggregate(begun.state, others, updates));
}

TEST_F(Loss, AnErrorOfOneOfTwoSideBySideStopsTheOtherAndIsTold) {
  auto e = experiment("fedit", Purpose::kTrain, "clients.parallel=3");
  e.fabric.shards.examples[1].clear();
  try {
    play(e.server, e.fabric, &e.fabric, root() / "side-by-side", 1);
    FAIL() << "an empty shard was trained on";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("round 1, client 1, method fedit"), std::string::npos) << error.what();
  }
}

TEST_F(Loss, OfAllClientsIsAnError) {
  auto e = experiment("fedit");
  PipeFabric pipes(e.fabric, {.seed = 3, .twice = false, .lost = {0, 1, 2}});
  EXPECT_THROW(play(e.server, pipes, nullptr, root() / "nobody", 1), Error);
}

TEST(Message, BytesThatAreNoneAreRefused) {
  const auto task = to_bytes(Task{.round = 3, .client = {.id = 2}, .ask = Score{.task = "boolq"}});
  EXPECT_EQ(std::get<Score>(std::get<Task>(from_bytes(task, "here")).ask).task, "boolq");
  for (int64_t kept = 0; kept < task.numel(); kept += 7)
    EXPECT_THROW(from_bytes(task.narrow(0, 0, kept).clone(), "here"), Error) << kept;
  const auto text = [](std::string_view header) {
    const uint64_t length = header.size();
    auto bytes_N = at::empty({8 + static_cast<int64_t>(length)}, at::kByte);
    std::memcpy(bytes_N.mutable_data_ptr(), &length, 8);
    std::memcpy(bytes_N.mutable_data_ptr<uint8_t>() + 8, header.data(), length);
    return bytes_N;
  };
  for (const auto* header : {R"({"message":"task","parts":{},"round":1,"client":{"id":1,"budget":1,"top_k":1,"rank":1,
                               "examples":1,"trains":true},"sleep":{}})",
                             R"({"message":"reply","parts":{},"client":1})", R"({"message":"song","parts":{}})", "[]"})
    EXPECT_THROW(from_bytes(text(header), "here"), Error) << header;
  EXPECT_THROW(report_of<Scored>(Reply{.client = 1}), Error);
  auto longer = task.clone();
  longer[7] = 1;
  EXPECT_THROW(from_bytes(longer, "here"), Error);
}

}  // namespace
}  // namespace evenkeel::fed
