/// \file  Defines the commands that rank 0 sends to the other ranks, one after another. A command is a line of JSON in
/// the store; some are followed by a broadcast of bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cluster/process_group.h"
#include "fed/exchange/message.h"

namespace evenkeel::cluster {

/// The kinds of commands.
enum class Order {
  kNews,       ///< followed by bytes: an update of the shared state, for all clients
  kTrain,      ///< followed by bytes: the server state, then the tensors that clients keep across rounds
  kSum,        ///< compute the sums of the round that was trained last, with all ranks
  kGradients,  ///< compute for the rank's clients the gradient sums that the field `ask` describes
  kEnd         ///< the rank is dismissed
};
constexpr auto names(Order) {
  return std::array{config::EnumName<Order>{"news", Order::kNews}, config::EnumName<Order>{"train", Order::kTrain},
                    config::EnumName<Order>{"sum", Order::kSum},
                    config::EnumName<Order>{"gradients", Order::kGradients},
                    config::EnumName<Order>{"end", Order::kEnd}};
}

/// One command. Fields that its order does not use keep their defaults.
struct Command {
  Order order = Order::kEnd;
  int64_t round = 0;                           ///< number of rounds done
  int64_t exchange = 0;                        ///< serial number of the exchange, for commands with replies
  std::vector<std::vector<int64_t>> shares{};  ///< client ids for each ProcessGroup::group_rank()
  std::vector<int64_t> participants{};         ///< kTrain: the drawn clients; kSum: the drawn clients that are not lost
  std::optional<fed::SumGradients> ask{};      ///< kGradients: the sums to compute
  int64_t bytes = 0,                           ///< length of the broadcast that follows
      memory_bytes = 0;  ///< kTrain: length of the second broadcast, the tensors that clients keep

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

/// Sends and receives the commands of one group.
class Commands {
 public:
  explicit Commands(ProcessGroup& member) : member_(member) {}
  /// Sends a command to all ranks (rank 0). \throws as ProcessGroup::check().
  void give(const Command& command);
  /// Waits for the next command and returns it (other ranks). \throws as ProcessGroup::check()
  Command take();
  /// Broadcasts bytes [N] uint8 from rank 0. Rank 0 calls share(); the others call shared() with the length and receive
  /// them. \param what  the content, for errors \throws as ProcessGroup::together()
  void share(const at::Tensor& bytes_N, const std::string& what);
  at::Tensor shared(int64_t size, const std::string& what);
  void begin_again() { next_ = 0; }  ///< restarts the numbering in a new group

 private:
  ProcessGroup& member_;
  int64_t next_ = 0;
};

/// Returns the training cost of a client for assign_by_cost(): its number of tokens times its experts per token.
double cost_of(const methods::ClientProfile& client, std::span<const data::Example> rows);

/// Returns the ids of clients, in order.
std::vector<int64_t> ids_of(std::span<const methods::ClientProfile> clients);

/// Return keys of the store, e.g. "ready/3/1" for exchange 3 and group rank 1. A rank sets `ready` when its replies are
/// complete, rank 0 sets `grant` when the rank may send them, and the rank reports client, steps and tokens in
/// `progress`.
std::string ready_key(int64_t exchange, int group_rank);
std::string grant_key(int64_t exchange, int group_rank);
std::string progress_key(int64_t exchange, int group_rank);

}  // namespace evenkeel::cluster
