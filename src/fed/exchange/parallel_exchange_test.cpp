#include "fed/exchange/parallel_exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

namespace evenkeel::fed {
namespace {

constexpr size_t kAtOnce = 3;

class ParallelExchange : public ::testing::Test {
 protected:
  ParallelExchange() {
    for (int64_t id = 0; id < std::ssize(clients_); ++id) clients_[static_cast<size_t>(id)].id = id;
  }

  /// Runs `work` for all clients.
  void run(const std::function<void(int64_t client, const OnProgress& on_progress)>& work) {
    const Exchange exchange{.task_of =
                                [&](const methods::ClientProfile& client) {
                                  asked_.push_back(client.id);
                                  return Task{.client = client};
                                },
                            .on_reply = [&](const Reply& reply) { replied_.push_back(reply.client); }};
    exchange_in_parallel(clients_, exchange, kAtOnce, [&](const Task& task, const OnProgress& on_progress) {
      work(task.client.id, on_progress);
      return Reply{.client = task.client.id};
    });
  }

  std::vector<methods::ClientProfile> clients_ = std::vector<methods::ClientProfile>(50);
  std::vector<int64_t> asked_{}, replied_{};
};

TEST_F(ParallelExchange, AsksAllClientsInOrderAndHasAReplyOfEach) {
  run([](int64_t, const OnProgress&) {});
  std::vector<int64_t> all(clients_.size());
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(asked_, all);
  std::sort(replied_.begin(), replied_.end());
  EXPECT_EQ(replied_, all);
}

TEST_F(ParallelExchange, HasAsManyThreadsAtOnceAsItMayAndJoinsThoseThatHaveEnded) {
  std::mutex mutex;
  size_t running = 0, most = 0;
  std::set<std::thread::id> threads;
  run([&](int64_t, const OnProgress&) {
    {
      const std::scoped_lock lock(mutex);
      most = std::max(most, ++running);
      threads.insert(std::this_thread::get_id());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const std::scoped_lock lock(mutex);
    --running;
  });
  EXPECT_LE(most, kAtOnce);
  // The id of a thread is that of its stack. Both are used again when the thread was joined, and not before.
  EXPECT_LT(threads.size(), clients_.size() / 2) << "ended threads were not joined";
}

TEST_F(ParallelExchange, StopsTheOthersAtAnErrorAndRethrowsIt) {
  const auto work = [](int64_t client, const OnProgress& on_progress) {
    if (client == 1) fail(kData, "client 1 has no rows");
    while (true) {  // until the exchange is over
      on_progress({.client = client});
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  };
  EXPECT_THROW(run(work), Error);
  EXPECT_TRUE(replied_.empty());
}

}  // namespace
}  // namespace evenkeel::fed
