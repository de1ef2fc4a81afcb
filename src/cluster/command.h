/// \file  What rank 0 asks of the others, one command after the other: a line of JSON on the store, and behind it, for
/// some, bytes to all.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cluster/process_group.h"
#include "fed/exchange/message.h"

namespace evenkeel::cluster {

enum class Order {
  kNews,       ///< bytes: what all clients learn
  kTrain,      ///< bytes: the state; the clients' memories
  kSum,        ///< the sums of the round that was trained last
  kGradients,  ///< `ask`, by the clients
  kEnd
};
constexpr auto names(Order) {
  return std::array{config::EnumName<Order>{"news", Order::kNews}, config::EnumName<Order>{"train", Order::kTrain},
                    config::EnumName<Order>{"sum", Order::kSum},
                    config::EnumName<Order>{"gradients", Order::kGradients},
                    config::EnumName<Order>{"end", Order::kEnd}};
}

struct Command {
  Order order = Order::kEnd;
  int64_t round = 0;
  int64_t exchange = 0;                        ///< counts those that clients answer
  std::vector<std::vector<int64_t>> shares{};  ///< ids of clients, by group_rank
  std::vector<int64_t> participants{};         ///< kTrain: who was drawn; kSum: who is left of them
  std::optional<SumGradients> ask{};
  int64_t bytes = 0, memory_bytes = 0;

  void visit(auto& field) {  // base/format/record.h
    field("order", order);
    field("round", round);
    field("exchange", exchange);
    field("shares", shares);
    field("participants", participants);
    field("ask", ask);
    field("bytes", bytes);
    field("memory_bytes", memory_bytes);
  }
};

/// Both ends of the commands of one group.
class Commands {
 public:
  explicit Commands(ProcessGroup& member) : member_(member) {}
  void give(const Command& command);
  Command take();  ///< waits
  /// [n] uint8 from rank 0 to all.
  void share(const at::Tensor& bytes_N, const std::string& what);
  at::Tensor shared(int64_t size, const std::string& what);
  void begin_again() { next_ = 0; }  ///< in a new group

 private:
  ProcessGroup& member_;
  int64_t next_ = 0;
};

/// What a client's training costs, for the deal: its tokens times its experts.
double cost_of(const ClientProfile& client, std::span<const Example> rows);

std::vector<int64_t> ids_of(std::span<const ClientProfile> clients);

/// "ready/3/1": the exchange and the group_rank. And of the grant to send.
std::string ready_key(int64_t exchange, int group_rank);
std::string grant_key(int64_t exchange, int group_rank);
std::string progress_key(int64_t exchange, int group_rank);

}  // namespace evenkeel::cluster
