/// \file  Runs the dialogues of one exchange. With each client: the offer if its node does not know the run (it may
/// have restarted), the shared state if it lacks it, then the task; the reply is validated. Private to FleetFabric.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "fed/exchange/fabric.h"
#include "flower/federation/agreement.h"
#include "flower/federation/envelope.h"
#include "flower/federation/fleet.h"

namespace evenkeel::flower {

Envelope offer_envelope(const Offer& offer);
/// Returns the acceptance in an envelope. \throws kData when the envelope is something else.
Acceptance acceptance_in(const Envelope& envelope);
/// Throws kData if an envelope that must have no payload has one.
void no_payload(const Envelope& envelope, int64_t payload_bytes);

class Sessions {
 public:
  /// Fleet and exchange are borrowed.
  Sessions(Fleet& fleet, const fed::Exchange& exchange) : fleet_(fleet), exchange_(exchange) {}
  ~Sessions();  ///< forgets all open messages
  Sessions(const Sessions&) = delete;
  Sessions& operator=(const Sessions&) = delete;

  /// Adds a client that gets a task. The task is made when its node is online.
  void begin(const methods::ClientProfile& client);
  /// Adds a client that gets an update. The client is dropped if its node stays offline.
  void tell(const methods::ClientProfile& client, const fed::StateUpdate& news);
  /// Adds a client that gets the final adapter. `taken` is called when the node has confirmed it.
  void bring(const methods::ClientProfile& client, const lora::EncodedPayload& adapter, std::function<void()> taken);
  /// Adds a client that gets the message that the run is over.
  void send_shutdown(const methods::ClientProfile& client);
  /// Runs until all clients have replied or are lost.
  void run();

 private:
  using Clock = std::chrono::steady_clock;
  struct Session {
    methods::ClientProfile client;
    std::string name;      // name of the node, for messages
    bool is_told = false;  // true: it gets a message and the wait for it is short; false: it gets a task
    Envelope own{};        // the message or task for it; a task is empty until it is built
    std::string type{};    // type of its message:
    int64_t round = 0;
    std::string waiting{};  // id of the message that awaits an answer; empty: none
    std::shared_ptr<IncomingEnvelope> incoming{};
    Clock::time_point last_online = Clock::now(), sent = Clock::now();
    double moved = 0;
    int words = 0;  // number of envelopes received from its node
    bool open = true;
    std::function<void()> taken{};  // set for the final adapter, which is confirmed by the node if it is online
  };

  void advance();
  void send(Session& session, const NodeInfo& node);
  const Envelope& next_envelope(Session& session);
  void make_task(Session& session);
  void tell(const methods::ClientProfile& client, Envelope envelope);
  void on_reply(const Arrival& arrival);
  void on_reply(Session& session, const Envelope& envelope, const Arrival& arrival);
  void accept(const Session& session, const Envelope& envelope);
  void finish(Session& session, const Envelope& envelope, const Arrival& arrival);
  void lose(Session& session, const std::string& why);
  void report(const Session& session, const std::string& outcome, const Arrival* arrival) const;
  void give_up_the_late();
  void tick();
  bool any_open() const;

  Fleet& fleet_;
  const fed::Exchange& exchange_;
  EnvelopePacker packer_;
  std::vector<Session> sessions_;
  Envelope offer_{}, whole_{};  // made at first use
  Clock::time_point begun_ = Clock::now();
  int64_t replies_ = 0;
};

}  // namespace evenkeel::flower
