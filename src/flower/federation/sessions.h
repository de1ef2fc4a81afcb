/// \file  The conversations of one exchange: with each client the offer if its node does not know the run (it may be a
/// new life of it), what all hold alike if it does not know that, and the task; then its reply, checked. Private to
/// FleetFabric.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "flower/federation/agreement.h"
#include "flower/federation/fleet_fabric.h"

namespace evenkeel {

Letter offer_letter(const Offer& offer);
/// \throws kData when the letter is something else.
Acceptance acceptance_in(const Letter& letter);
/// For letters that bring nothing but words.
void no_payload(const Letter& letter, int64_t payload_bytes);

class Talks {
 public:
  /// Both borrowed.
  Talks(FleetFabric& fabric, const Exchange& exchange) : fabric_(fabric), exchange_(exchange) {}
  ~Talks();  ///< whatever is under way is forgotten
  Talks(const Talks&) = delete;
  Talks& operator=(const Talks&) = delete;

  /// A client that is to do a task, which is made when its node is there.
  void begin(const ClientProfile& client);
  /// A client that is to learn something, and is not waited for when its node is away.
  void tell(const ClientProfile& client, const News& news);
  /// A client that is to have the final adapter. `taken` is called when it has it.
  void bring(const ClientProfile& client, const EncodedPayload& adapter, std::function<void()> taken);
  /// A client that is told that the run is over.
  void bid_farewell(const ClientProfile& client);
  /// Until all have replied or are lost.
  void run();

 private:
  using Clock = std::chrono::steady_clock;
  struct Talk {
    ClientProfile client;
    std::string name;      // of the node, for messages
    bool is_told = false;  // and not waited for long; else it has a task
    Letter own{};          // what it is told, or its task, which is empty until it is made
    std::string type{};    // of its message: "train", "evaluate", "query"
    int64_t round = 0;
    std::string waiting{};  // for the answer to this message; empty: for its node
    std::shared_ptr<IncomingLetter> incoming{};
    Clock::time_point last_online = Clock::now(), sent = Clock::now();
    double moved = 0;
    int words = 0;  // how many letters of its node were heard
    bool open = true;
    std::function<void()> taken{};  // of what may take long to send: the node is waited for while it is online
  };

  void advance();
  void send(Talk& talk, const wire::NodeInfo& node);
  const Letter& next_letter(Talk& talk);
  void make_task(Talk& talk);
  void tell(const ClientProfile& client, Letter letter);
  void hear(const wire::Arrival& arrival);
  void hear(Talk& talk, const Letter& letter, const wire::Arrival& arrival);
  void accept(const Talk& talk, const Letter& letter);
  void finish(Talk& talk, const Letter& letter, const wire::Arrival& arrival);
  void lose(Talk& talk, const std::string& why);
  void report(const Talk& talk, const std::string& outcome, const wire::Arrival* arrival) const;
  void give_up_the_late();
  void tick();
  bool any_open() const;

  FleetFabric& fabric_;
  const Exchange& exchange_;
  LetterPacker packer_;
  std::vector<Talk> talks_;
  Letter offer_{}, whole_{};  // made when somebody needs them
  Clock::time_point begun_ = Clock::now();
  int64_t replies_ = 0;
};

}  // namespace evenkeel
