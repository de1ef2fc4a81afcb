// Groups of real processes, which die inside operations.
#include "cluster/collective.h"

#include <ATen/ATen.h>
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <deque>

#include "base/plain/error.h"
#include "cluster/identity.h"
#include "cluster/process_group.h"
#include "cluster/reply_exchange.h"

namespace evenkeel::cluster {
namespace {

using Work = std::function<bool(Collective& group)>;

/// A socket that listens at a free port of loopback.
struct Listening {
  int socket;
  uint16_t port;
};
Listening listen_on_loopback() {
  const int listening = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof name;
  EXPECT_EQ(::bind(listening, reinterpret_cast<sockaddr*>(&name), length), 0);
  ::listen(listening, 16);
  ::getsockname(listening, reinterpret_cast<sockaddr*>(&name), &length);
  return {listening, ntohs(name.sin_port)};
}

/// Runs `work` in processes of one group. \return the exit code of each, 128 + the signal of one that was killed: 0
/// where `work` is true, 1 where it is false, 2 where it throws kIo
std::vector<int> in_group(int size, double timeout_s, const Work& work) {
  const auto [listening, port] = listen_on_loopback();
  std::vector<pid_t> processes;
  for (int rank = 0; rank < size; ++rank) {
    processes.push_back(::fork());
    if (processes.back() != 0) continue;
    ::alarm(300);
    try {
      const StoreAddress address{.host = "127.0.0.1", .port = port, .here = rank == 0, .listening = listening};
      auto store = make_store(address, timeout_s);
      auto group = make_group(*store, address, {.name = "test/", .rank = rank, .size = size, .timeout_s = timeout_s});
      const bool good = work(*group);
      std::vector<int64_t> last{1};
      if (good) group->sum(last);  // nobody leaves before all are done
      ::_exit(good ? 0 : 1);
    } catch (const Error& error) {
      ::_exit(error.kind() == kIo ? 2 : 3);
    }
  }
  ::close(listening);
  std::vector<int> codes;
  for (const auto process : processes) {
    int status = 0;
    ::waitpid(process, &status, 0);
    codes.push_back(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
  }
  return codes;
}

class Group : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_gloo()) GTEST_SKIP() << "this LibTorch has no Gloo";
  }
};

TEST_F(Group, MovesBytesAndIntegersLongerThanASlice) {
  const auto codes = in_group(3, 120, [](Collective& group) {
    const int rank = group.rank();
    std::vector<std::byte> bytes(kSlice + 1001, std::byte(rank == 1 ? 7 : 0));
    group.broadcast(bytes, 1);
    std::vector<int64_t> sums(kSlice / 8 + 5, int64_t{1} << (40 + rank)), most{-rank, rank, 5};
    group.sum(sums);
    group.max(most);
    bool good = bytes.front() == std::byte(7) && bytes.back() == std::byte(7) && sums.front() == int64_t{7} << 40 &&
                sums.back() == int64_t{7} << 40 && most == std::vector<int64_t>{0, 2, 5};
    if (rank == 2) group.send(bytes, 0);
    if (rank == 0) {
      std::vector<std::byte> got(bytes.size());
      group.receive(got, 2);
      good = good && got == bytes;
    }
    return good;
  });
  EXPECT_EQ(codes, (std::vector<int>{0, 0, 0}));
}

/// Kills rank 1 while the others are inside `work`; they must leave with an error well before the timeout.
void expect_loss_is_heard(const std::function<void(Collective& group)>& work) {
  const auto begin = std::chrono::steady_clock::now();
  const auto codes = in_group(3, 120, [&](Collective& group) {
    if (group.rank() == 1) {
      ::usleep(200'000);
      ::raise(SIGKILL);
    }
    work(group);
    return true;
  });
  EXPECT_EQ(codes, (std::vector<int>{2, 128 + SIGKILL, 2}));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(100));
}

TEST_F(Group, ALossInABroadcastIsHeardByAll) {
  expect_loss_is_heard([](Collective& group) {
    std::vector<std::byte> bytes(2 * kSlice);
    group.broadcast(bytes, 1);
  });
}

TEST_F(Group, ALossInASumIsHeardByAll) {
  expect_loss_is_heard([](Collective& group) {
    std::vector<int64_t> values(kSlice / 4);
    group.sum(values);
  });
}

TEST_F(Group, ALossWithinASendIsHeardByItsReceiver) {
  const auto codes = in_group(2, 120, [](Collective& group) {
    std::vector<std::byte> bytes(kSlice);
    if (group.rank() == 1) {
      group.send(bytes, 0);
      ::raise(SIGKILL);
    }
    std::vector<std::byte> twice(2 * kSlice);
    group.receive(twice, 1);
    return true;
  });
  EXPECT_EQ(codes, (std::vector<int>{2, 128 + SIGKILL}));
}

TEST_F(Group, ASilentPeerIsATimeout) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const auto codes = in_group(2, 5, [&](Collective& group) {
    char word = 'x';
    std::vector<int64_t> values(3);
    if (group.rank() == 1) return ::read(ends[0], &word, 1) != 1;  // silent until the other has given up
    try {
      group.sum(values);
    } catch (const Error&) {
      if (::write(ends[1], &word, 1) != 1) return false;
      throw;
    }
    return false;
  });
  ::close(ends[0]);
  ::close(ends[1]);
  EXPECT_EQ(codes, (std::vector<int>{2, 1}));
}

/// What one sends the other receives, in this process.
class Pipe : public Collective {
 public:
  int rank() const override { return 0; }
  int size() const override { return 2; }
  void broadcast(std::span<std::byte>, int) override {}
  void sum(std::span<int64_t>) override {}
  void max(std::span<int64_t>) override {}
  void send(std::span<const std::byte> bytes, int) override { sent_.insert(sent_.end(), bytes.begin(), bytes.end()); }
  void receive(std::span<std::byte> bytes, int) override {
    ASSERT_GE(sent_.size(), bytes.size());
    std::copy_n(sent_.begin(), bytes.size(), bytes.begin());
    sent_.erase(sent_.begin(), sent_.begin() + static_cast<std::ptrdiff_t>(bytes.size()));
  }

 private:
  std::deque<std::byte> sent_;
};

fed::Reply a_reply() {
  fed::Reply reply{.client = 4, .report = train::LocalReport{}, .memory = {{"rescaler", at::full({3}, 0.5f)}}};
  std::get<train::LocalReport>(reply.report).steps = 7;
  reply.upload = lora::EncodedPayload{at::arange(100, at::kByte), {{"adapters", 100}}};
  reply.task_size = fed::PayloadSize{10, {{"phi", 10}}};
  return reply;
}

TEST(ReplyOnItsWay, ArrivesWithAllThatItsRankKnows) {
  Pipe pipe;
  const ReplyHeader header{.layout = 9, .round = 2, .group = 1};
  send_reply(pipe, 0, header, a_reply());
  const auto got = receive_reply(pipe, 1, header);
  EXPECT_EQ(got.client, 4);
  EXPECT_EQ(fed::report_of<train::LocalReport>(got).steps, 7);
  ASSERT_TRUE(fed::encoded_payload(got.upload));
  EXPECT_TRUE(fed::encoded_payload(got.upload)->bytes.equal(at::arange(100, at::kByte)));
  EXPECT_EQ(fed::encoded_payload(got.upload)->parts, (std::map<std::string, int64_t>{{"adapters", 100}}));
  EXPECT_TRUE(got.memory.at("rescaler").equal(at::full({3}, 0.5f)));
  EXPECT_EQ(got.task_size->bytes, 10);
  EXPECT_EQ(got.task_size->parts, a_reply().task_size->parts);
}

TEST(ReplyOnItsWay, HasARemoteUploadOrNoneAsItWasSent) {
  const ReplyHeader header{.layout = 9, .round = 2, .group = 1};
  for (const fed::Upload& upload :
       {fed::Upload(fed::RemoteUpload{{100, {{"adapters", 90}, {"header", 10}}}}), fed::Upload(fed::NoUpload{})}) {
    Pipe pipe;
    auto reply = a_reply();
    reply.upload = upload;
    send_reply(pipe, 0, header, reply);
    const auto got = receive_reply(pipe, 1, header);
    ASSERT_EQ(got.upload.index(), upload.index());
    if (const auto* remote = std::get_if<fed::RemoteUpload>(&got.upload)) {
      EXPECT_EQ(remote->size.bytes, 100);
      EXPECT_EQ(remote->size.parts.at("adapters"), 90);
    }
  }
}

TEST(ReplyOnItsWay, OfAnEarlierGroupAnotherRoundOrModelIsRefused) {
  const ReplyHeader expected{.layout = 9, .round = 2, .group = 1};
  for (const auto& [late, word] : std::vector<std::pair<ReplyHeader, std::string>>{
           {{.layout = 9, .round = 2, .group = 0}, "belongs to group 0, this is 1"},
           {{.layout = 9, .round = 1, .group = 1}, "belongs to round 2, this is 3"},
           {{.layout = 8, .round = 2, .group = 1}, "another model"}}) {
    Pipe pipe;
    send_reply(pipe, 0, late, a_reply());
    try {
      receive_reply(pipe, 1, expected);
      ADD_FAILURE() << word;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    }
  }
}

TEST(Identities, ALineSaysWhoDiffersInWhat) {
  const Identity one{"a", "p", "c1", "m1", "d1", "b1", "s1", "x1"};
  auto other = one;
  other.host = "b", other.base = "b2", other.build = "x2";
  EXPECT_TRUE(differences({one, one}).empty());
  EXPECT_EQ(differences({one, one, other}),
            std::vector<std::string>{"rank 2 (b): base is b2, of rank 0 b1; program is x2, of rank 0 x1"});
}

TEST_F(Group, AGroupOfOneMemberHasNoCollective) {
  const auto process = ::fork();
  if (process == 0) try {  // a process of its own, because the threads of the heartbeat never end
      ::alarm(300);
      const auto [listening, port] = listen_on_loopback();
      ProcessGroup member({.store = {.host = "127.0.0.1", .port = port, .here = true, .listening = listening}}, {});
      member.form_group();
      member.together("a sum", [](Collective&) {});
      ::_exit(1);
    } catch (const Error& error) {
      ::_exit(error.kind() == kInternal ? 0 : 2);
    }
  int status = 0;
  ::waitpid(process, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace evenkeel::cluster
