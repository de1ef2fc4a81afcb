/// \file  Exchanges messages with the nodes of all clients of one exchange. Each client's node is sent, in this order:
/// the offer of the run, if the node does not know the run, for example after a restart; the shared state, if the node
/// lacks it; and the task. The reply is validated. An invalid reply loses only that client. Private to FleetFabric.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "fed/exchange/fabric.h"
#include "flower/federation/agreement.h"
#include "flower/federation/envelope.h"
#include "flower/federation/fleet.h"
#include "flower/federation/kept_payloads.h"

namespace evenkeel::flower {

/// Returns an offer in an envelope.
Envelope offer_envelope(const Offer& offer);
/// Returns the acceptance in an envelope. \throws kData when the envelope is something else.
Acceptance acceptance_in(const Envelope& envelope);
/// Checks what a node states of itself and the server cannot compare with anything: the number of its test rows and the
/// version of its program. \throws kData naming the value and what is allowed
void check_statements(const Acceptance& acceptance);
/// Checks that an envelope has no payload. \return true
/// \throws kData naming the kind of `envelope` when `payload_bytes` is not 0
bool check_no_payload(const Envelope& envelope, int64_t payload_bytes);

/// Runs one exchange with all its clients. Threads: one.
class Sessions {
 public:
  /// Borrows fleet and exchange. The deadline of FleetTerms counts from here.
  /// \param scores  true: the tasks are scores, see begin()
  Sessions(Fleet& fleet, const fed::Exchange& exchange, bool scores = false)
      : fleet_(fleet), exchange_(exchange), scores_(scores) {}
  ~Sessions();  ///< forgets all open messages
  Sessions(const Sessions&) = delete;
  Sessions& operator=(const Sessions&) = delete;

  /// Adds a client that gets a task. The task is made when its node is online. The client is lost if its node sends
  /// invalid data, an error or 16 envelopes without the reply, if its key may not join any more, or if it misses the
  /// deadline after `quorum` clients have replied. If a score is asked of fewer clients than the run has, an equal
  /// share of the quorum is enough, rounded down. Without a deadline, or for a score, a client is also lost when its
  /// node has been offline for `patience_s`.
  ///
  /// A client that was too late before in this round (Fleet::late) costs no second wait: its score is awaited only
  /// while other clients' scores are. A node that was too late in training and has called since has the whole time.
  void begin(const methods::ClientProfile& client);
  /// Adds a client that gets a message of a phase of a masked round. `answered` gets the answer, of the same kind and
  /// without a payload; if it throws an Error, the client is lost. The deadlines are the same as in begin().
  void ask(const methods::ClientProfile& client, Envelope envelope,
           std::function<void(const Envelope& answer)> answered);
  /// Adds a client that gets an update. The client is dropped, without on_lost, if its node has not confirmed the
  /// update 10 s after this object was made.
  void tell(const methods::ClientProfile& client, const fed::StateUpdate& news);
  /// Adds a client that gets the final adapter. `taken` is called when the node has confirmed it. The client is dropped
  /// when its node has been offline for 10 s.
  void bring(const methods::ClientProfile& client, const lora::EncodedPayload& adapter, std::function<void()> taken);
  /// Adds a client that gets the message that the run is over. It is dropped as after tell().
  void send_shutdown(const methods::ClientProfile& client);
  /// Runs until all clients have replied or are lost. Losses of clients with a task go to Exchange::on_lost.
  /// \param enough  ends the exchange without the rest when it returns true; empty: nothing does
  /// \throws kData for a lost client if on_lost is empty; anything that a callback of the exchange throws
  void run(const std::function<bool()>& enough = {});

 private:
  using Clock = std::chrono::steady_clock;
  struct Session {
    methods::ClientProfile client;
    std::string name;      // name of the node, for messages
    bool is_told = false;  // true: it gets a message other than a task
    Envelope own{};        // the message or task for it; a task is empty until it is built
    std::string type{};    // Flower message type of `own`: "train", "evaluate" or "query"
    int64_t round = 0;
    std::string waiting{};  // id of the message that awaits an answer; empty: none
    std::shared_ptr<IncomingEnvelope> incoming{};
    Clock::time_point last_online = Clock::now(), sent = Clock::now();
    fed::AuditWork work = fed::AuditWork::kNone;
    std::string digest{};      // SHA-256 of the payload of a scoring task; empty: of another message, or not made
    bool is_left_out = false;  // true: the last message named that payload and left it out
    bool tells = false;        // true: the last message told the outcome of the client's last work
    int64_t down = 0, up = 0;  // bytes of headers and payloads sent to the node and received
    double heard_at = 0;       // time of its node's last call, seconds since 1970; 0: not known
    double moved = 0;          // norm of the client's update (Exchange::check); 0: the reply has none
    int received = 0;          // number of envelopes received from its node
    bool open = true;
    std::function<void()> taken{};  // set for the final adapter: called when the node has confirmed it
    std::function<void(const Envelope& answer)> answered{};  // set for a phase of a masked round
  };

  void advance();
  void send(Session& session, const NodeInfo& node);
  const Envelope& next_envelope(Session& session);
  Envelope outgoing(Session& session, const Envelope& envelope);
  void keeps(const Session& session);
  void make_task(Session& session);
  void tell(const methods::ClientProfile& client, Envelope envelope);
  void on_reply(const Arrival& arrival);
  void on_reply(Session& session, const Envelope& envelope, const Arrival& arrival);
  void accept(const Session& session, const Envelope& envelope);
  void finish(Session& session, const Envelope& envelope, const Arrival& arrival);
  void lose(Session& session, const std::string& why);
  void report(const Session& session, const std::string& outcome, const Arrival* arrival);
  void remember_outcome(const Session& session, bool taken, const std::string& why);
  void record_task(const Session& session, const NodeInfo& node, const Envelope& envelope);
  void record_end(const Session& session);
  void record_silence(const Session& session, const std::string& why);
  std::string lateness(const Session& session, bool is_past_deadline) const;
  std::string lateness_of_score(const Session& session, bool is_past_deadline) const;
  std::string lateness_of_message(const Session& session) const;
  bool is_barred(const Session& session) const;  // true: the key of the client's node may not join any more
  std::string absence(const Session& session) const;
  bool was_late(const Session& session) const;
  bool is_past_deadline() const;
  bool any_in_time() const;
  void give_up_the_late();
  void tick();
  bool any_open() const;

  Fleet& fleet_;
  const fed::Exchange& exchange_;
  bool scores_ = false;  // the tasks are scores
  EnvelopePacker packer_;
  PayloadDigests digests_;
  std::vector<Session> sessions_;
  Envelope offer_{}, whole_{};  // the latest offer; the whole shared state, made at first use
  Clock::time_point begun_ = Clock::now();
  int64_t replies_ = 0;
};

}  // namespace evenkeel::flower
