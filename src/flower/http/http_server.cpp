#include "flower/http/http_server.h"

#include <fcntl.h>
#include <httplib.h>
#include <openssl/err.h>
#include <sys/socket.h>

#include <condition_variable>
#include <deque>
#include <utility>

#include "base/plain/address.h"
#include "base/plain/descriptor.h"
#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/json.h"
#include "base/plain/log.h"
#include "base/plain/os_error.h"
#include "base/plain/text.h"
#include "flower/http/certificates.h"
#include "flower/http/connection.h"
#include "flower/http/http_client.h"
#include "flower/http/idle_connections.h"

namespace evenkeel::flower {
namespace {

constexpr size_t kMostWaiting = 4096;   // limit of connections that wait for a thread
constexpr int kBacklog = 512;           // five, as cpp-httplib has it, are too few when many nodes reconnect at once
constexpr size_t kManyUnfinished = 32;  // connections without a whole request that are worth a warning
// How long a thread waits for the next request, if no other connection waits.
constexpr auto kNext = std::chrono::milliseconds(2);
constexpr auto kAcceptAgain = std::chrono::milliseconds(100);  // after a failure to accept a connection

/// Adapts a Connection to cpp-httplib.
class ConnectionStream : public httplib::Stream {
 public:
  explicit ConnectionStream(Connection& connection) : connection_(connection) {}
  bool is_readable() const override { return true; }
  bool is_writable() const override { return true; }
  ssize_t read(char* data, size_t size) override { return connection_.read(data, size); }
  ssize_t write(const char* data, size_t size) override { return connection_.write(data, size); }
  void get_remote_ip_and_port(std::string& ip, int& port) const override { address(::getpeername, ip, port); }
  void get_local_ip_and_port(std::string& ip, int& port) const override { address(::getsockname, ip, port); }
  socket_t socket() const override { return connection_.socket(); }

 private:
  template <typename Ask>
  void address(Ask ask, std::string& ip, int& port) const {
    sockaddr_storage storage{};
    socklen_t length = sizeof storage;
    std::array<char, NI_MAXHOST> host{};
    std::array<char, NI_MAXSERV> service{};
    auto* generic = reinterpret_cast<sockaddr*>(&storage);
    if (ask(connection_.socket(), generic, &length) != 0 ||
        ::getnameinfo(generic, length, host.data(), host.size(), service.data(), service.size(),
                      NI_NUMERICHOST | NI_NUMERICSERV) != 0)
      return;
    ip = host.data();
    port = std::atoi(service.data());
  }

  Connection& connection_;
};

/// A pool with a fixed number of threads.
class Threads {
 public:
  explicit Threads(int count) {
    try {
      for (int i = 0; i < count; ++i) threads_.emplace_back([this] { work(); });
    } catch (const std::system_error& error) {
      shutdown();
      throw os_error(error);
    }
  }
  ~Threads() { shutdown(); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
  void enqueue(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
      ++waiting_;
    }
    arrived_.notify_one();
  }
  /// Waits for the tasks.
  void shutdown() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    arrived_.notify_all();
    for (auto& thread : threads_)
      if (thread.joinable()) thread.join();
  }
  /// Returns true if connections wait for a thread.
  bool crowded() const { return waiting_ > 0; }
  bool overrun() const { return waiting_ > kMostWaiting; }
  size_t size() const { return threads_.size(); }

 private:
  void work() {
    while (true) {
      std::unique_lock lock(mutex_);
      arrived_.wait(lock, [this] { return done_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      const auto task = std::move(tasks_.front());
      tasks_.pop_front();
      --waiting_;
      lock.unlock();
      task();
    }
  }

  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::function<void()>> tasks_;
  std::atomic<size_t> waiting_ = 0;
  bool done_ = false;
};

/// Gives OpenSSL no passphrase, so that it does not ask at the terminal. \param asked  a bool to set, or null
int refuse_passphrase(char*, int, int, void* asked) {
  if (asked != nullptr) *static_cast<bool*>(asked) = true;
  return -1;
}

/// Sets the key of the context's certificate. REQUIRES refuse_passphrase() as the context's callback. \throws kIo with
/// the system's reason if the file cannot be opened; kConfig if it has no key, one with a passphrase or another's
void use_private_key(SSL_CTX* context, const TlsFiles& files) {
  bool is_protected = false;
  SSL_CTX_set_default_passwd_cb_userdata(context, &is_protected);
  const auto key = files.key.string();
  const bool read = SSL_CTX_use_PrivateKey_file(context, key.c_str(), SSL_FILETYPE_PEM) == 1;
  SSL_CTX_set_default_passwd_cb_userdata(context, nullptr);
  const bool fits = read && SSL_CTX_check_private_key(context) == 1;
  ERR_clear_error();
  if (!read) open_file(files.key, O_RDONLY | O_NONBLOCK);  // throws the system's reason, if there is one
  EK_CHECK(!is_protected, kConfig, key,
           " is a private key with a passphrase, allowed: one without, as `openssl pkey -in ", key, "` prints it");
  EK_CHECK(fits, kConfig, key, " is no private key in PEM that belongs to ", files.certificate.string());
}

std::shared_ptr<SSL_CTX> tls_context(const TlsFiles& files) {
  const std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_server_method()), &SSL_CTX_free);
  EK_CHECK(context, kInternal, "TLS is not to be had");
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_default_passwd_cb(context.get(), refuse_passphrase);
  const auto certificate = files.certificate.string();
  const bool read = SSL_CTX_use_certificate_chain_file(context.get(), certificate.c_str()) == 1;
  ERR_clear_error();
  if (!read) open_file(files.certificate, O_RDONLY | O_NONBLOCK);  // throws the system's reason, if there is one
  EK_CHECK(read, kConfig, certificate, " is no certificate in PEM");
  use_private_key(context.get(), files);
  if (const auto fault = fault_of_dates(SSL_CTX_get0_certificate(context.get())); !fault.empty())
    log::warning("[serve] the certificate ", certificate, " ", fault, ": nodes will refuse it");
  return context;
}

/// Allows binding an address in TIME_WAIT. cpp-httplib would set SO_REUSEPORT instead, with which several processes
/// could listen on the same port.
void keep_port_to_itself(socket_t socket) {
  const int yes = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
}

/// The connection that the current thread serves.
struct Serving {
  Connection* connection = nullptr;
  bool close = false;
};
thread_local Serving serving;

}  // namespace

HttpReply reply_of(const Refusal& refusal) {
  OrderedJson body;
  if (refusal.code != 0) body["code"] = refusal.code;
  body["detail"] = refusal.detail;
  return {.status = refusal.status,
          .type = "application/json",
          .body = body.dump(-1, ' ', true, Json::error_handler_t::replace),
          .close = refusal.close};
}

struct HttpServer::Parts : httplib::Server {
  Parts(ServerOptions given, Answering answers) : options(std::move(given)), answering(std::move(answers)) {
    if (options.tls) tls = tls_context(*options.tls);
    set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      if (request.method == "POST" && request.path.starts_with("/v1/fleet/")) return HandlerResponse::Unhandled;
      answer(request, response, nullptr);
      return HandlerResponse::Handled;
    });
    Post("/v1/fleet/[-a-z]{1,40}",
         [this](const auto& request, auto& response, const auto& reader) { answer(request, response, &reader); });
    set_error_handler([](const httplib::Request&, httplib::Response& response) {
      if (!response.body.empty()) return;  // the body was set by answer()
      response.set_content(R"({"detail": "no such call"})", "application/json");
      serving.close = true;
    });
    set_socket_options(keep_port_to_itself);
    bound = options.port == 0 ? bind_to_any_port(options.host)
                              : (bind_to_port(options.host, options.port) ? options.port : -1);
    EK_CHECK(bound > 0, kIo, "cannot listen at ", address_text(options.host, options.port), ": ",
             errno == EADDRINUSE ? "the address is in use by another process" : "it is no address of this machine");
    ::listen(svr_sock_, kBacklog);
    threads = std::make_unique<Threads>(options.threads);
    listener = std::thread([this, socket = svr_sock_.load()] { listen_at(socket); });
  }

  ~Parts() override {
    stopping = true;
    idle.close();
    const int socket = svr_sock_.exchange(INVALID_SOCKET);  // cpp-httplib ends its answers then
    ::shutdown(socket, SHUT_RDWR);
    listener.join();
    ::close(socket);
    threads->shutdown();
  }

  /// Accepts connections until this object ends. When the system cannot give one, for example for lack of memory or of
  /// file descriptors, it is asked again: cpp-httplib's own loop would end.
  void listen_at(int socket) {
    bool fails = false;
    while (!stopping) {
      const int accepted = ::accept4(socket, nullptr, nullptr, SOCK_CLOEXEC);
      if (accepted < 0 && (stopping || errno == EINTR || errno == ECONNABORTED)) continue;
      if (const bool failed = accepted < 0; std::exchange(fails, failed) != failed) tell_of_accepting(failed, errno);
      if (accepted < 0)
        std::this_thread::sleep_for(kAcceptAgain);
      else
        attend(accepted);
    }
  }

  void tell_of_accepting(bool failed, int error) const {
    const auto address = address_text(options.host, bound);
    if (failed)
      log::error("[serve] no connection can be accepted at ", address, ": ", os_error_text(error), "; trying again");
    else
      log::info("[serve] connections are accepted at ", address, " again");
  }

  void attend(int socket) {
    ++counts.connections;
    if (threads->overrun() || stopping) {
      ::close(socket);
      return;
    }
    const std::function<bool()> crowded = [this] { return threads->crowded() || stopping; };
    wait_for_head(std::make_shared<Connection>(socket, tls.get(), options.limits, crowded));
  }

  /// Waits for the rest of a head without a thread. Says once when many do not send it.
  void wait_for_head(std::shared_ptr<Connection> connection) {
    const size_t waiting = idle.add_unfinished(std::move(connection));
    if (waiting < std::max<size_t>(kManyUnfinished, threads->size()) || told_of_slow.exchange(true)) return;
    log::warning("[serve] ", waiting, " connections have sent no whole request yet: slow peers, or none of the run's. ",
                 "Each is closed after ", options.limits.head_s, " s; nodes do not wait for them");
  }

  /// Answers the requests that have arrived on `connection`, and those that follow immediately. A thread has a
  /// connection only while a request is whole up to its body.
  void serve(const std::shared_ptr<Connection>& connection) {
    serving = {.connection = connection.get()};
    auto head = connection->take_head();
    while (head == Connection::Head::kWhole) {
      connection->head_begins_at({});
      if (!serve_request(*connection) || stopping) break;
      head = connection->take_head();
      if (head == Connection::Head::kNothing && !threads->crowded() && connection->has_data(kNext))
        head = connection->take_head();
    }
    serving = {};
    using enum Connection::Head;
    if (head == kNothing && connection->handshake_done()) return idle.add(connection);
    if (head == kNothing || head == kPart) return wait_for_head(connection);
    if (head == kClosed && !connection->handshake_done()) ++counts.cut_off;
  }

  /// Answers one request. \return false if the connection must be closed
  bool serve_request(Connection& connection) {
    ConnectionStream stream(connection);
    bool closed = false;
    const uint64_t before_in = connection.bytes_in(), before_out = connection.bytes_out();
    const bool open = process_request(stream, false, closed, [&](httplib::Request& request) {
      request.headers.erase("Accept-Encoding");  // answers are not compressed, because tensors hardly shrink
      connection.head_is_read();
    });
    counts.bytes_in += connection.bytes_in() - before_in;
    counts.bytes_out += connection.bytes_out() - before_out;
    const bool received = connection.bytes_in() > before_in;
    if (received) ++counts.requests;
    if (received && !open) ++counts.cut_off;
    return open && !closed && !serving.close;
  }

  void answer(const httplib::Request& from, httplib::Response& to, const httplib::ContentReader* reader) {
    HttpRequest request{.method = from.method,
                        .path = from.path,
                        .peer = address_text(from.remote_addr, from.remote_port),
                        .content_type = from.get_header_value("Content-Type"),
                        .content_encoding = from.get_header_value("Content-Encoding"),
                        .signature = {.public_key = from.get_header_value("flwr-public-key"),
                                      .timestamp = from.get_header_value("flwr-timestamp"),
                                      .signature = from.get_header_value("flwr-signature"),
                                      .instance = from.get_header_value(std::string(kInstanceHeader))},
                        .program = shown(concat(from.get_header_value("flwr-package-name"), " ",
                                                from.get_header_value("flwr-package-version"))),
                        .body = {}};
    bool read = !reader;
    request.body = [&](size_t most) {
      read = true;
      return read_body(from, reader, request.length, most);
    };
    HttpReply reply;
    try {
      request.length = content_length(from);
      reply = answering(request);
    } catch (const Refusal& refusal) {
      reply = reply_of(refusal);
    } catch (const std::exception& error) {
      log::error("[serve] ", shown(request.path), " from ", request.peer, ": ", error.what());
      reply = reply_of({.status = 500, .detail = "the server failed at this"});
    }
    if (reply.status == 200 && request.method == "POST") serving.connection->set_known();
    serving.close = serving.close || reply.close || !read || (!reader && request.length.value_or(0) > 0);
    if (!tls && reply.pieces.empty()) to.set_header(std::string(kDigestHeader), sha256(reply.body));
    write(std::move(reply), to);
  }

  static std::optional<uint64_t> content_length(const httplib::Request& from) {
    if (!from.has_header("Content-Length")) return std::nullopt;
    const auto text = from.get_header_value("Content-Length");
    const auto length = parse_number<uint64_t>(text);
    if (!length || from.get_header_value_count("Content-Length") > 1)
      throw Refusal{.status = 400, .code = 1003, .detail = "Content-Length is not one whole number", .close = true};
    return length;
  }

  /// Returns the body. \throws Refusal 503, so that the caller repeats the call, when it is not the one that was sent
  static std::string undamaged(const httplib::Request& from, std::string body) {
    const auto digest = from.get_header_value(std::string(kDigestHeader));
    if (digest.empty() || digest == sha256(body)) return body;
    throw Refusal{.status = 503, .detail = "a body that was damaged on the way"};
  }

  static std::string read_body(const httplib::Request& from, const httplib::ContentReader* reader,
                               const std::optional<uint64_t>& length, size_t most) {
    if (length.value_or(0) > most)
      throw Refusal{.status = 413,
                    .code = 1003,
                    .detail = concat("a body of ", *length, " bytes, allowed: up to ", most),
                    .close = true};
    std::string body;
    body.reserve(length.value_or(0));
    const bool whole = reader && (*reader)([&](const char* data, size_t size) {
                         if (size > most - body.size()) return false;
                         body.append(data, size);
                         return true;
                       });
    if (whole && (!length || body.size() == *length)) return undamaged(from, std::move(body));
    const bool slow = serving.connection->too_slow();
    throw Refusal{
        .status = slow ? 408 : 400,
        .code = 1003,
        .detail = slow ? "a body that came too slowly" : concat("a body that ended after ", body.size(), " bytes"),
        .close = true};
  }

  static void write(HttpReply reply, httplib::Response& to) {
    to.status = reply.status;
    to.set_header("Date", date());
    if (!reply.reason.empty()) to.set_header(std::string(kReasonHeader), reply.reason);
    if (serving.close) to.set_header("Connection", "close");
    if (reply.pieces.empty()) return to.set_content(std::move(reply.body), reply.type);
    size_t length = reply.body.size();
    for (const auto piece : reply.pieces) length += piece.size();
    const std::string type = reply.type;
    to.set_content_provider(length, type, [reply = std::move(reply)](size_t, size_t, httplib::DataSink& sink) {
      serving.connection->stop_when(reply.unwanted);
      bool good = sink.write(reply.body.data(), reply.body.size());
      for (const auto piece : reply.pieces)
        good = good && sink.write(reinterpret_cast<const char*>(piece.data()), piece.size());
      serving.connection->stop_when({});
      return good;
    });
  }

  static std::string date() {
    const std::time_t now = std::time(nullptr);
    std::tm time{};
    ::gmtime_r(&now, &time);
    std::array<char, 40> text{};
    std::strftime(text.data(), text.size(), "%a, %d %b %Y %H:%M:%S GMT", &time);
    return text.data();
  }

  const ServerOptions options;
  const Answering answering;
  std::shared_ptr<SSL_CTX> tls;
  std::atomic<bool> stopping = false;
  std::unique_ptr<Threads> threads;
  HttpCounts counts;
  int bound = -1;
  std::atomic<bool> told_of_slow = false;
  IdleConnections idle{{.idle_s = options.limits.idle_s, .head_s = options.limits.head_s},
                       [this](std::shared_ptr<Connection> connection) {
                         threads->enqueue([this, connection = std::move(connection)] { serve(connection); });
                       },
                       [this] { ++counts.cut_off; }};
  std::thread listener;
};

HttpServer::HttpServer(const ServerOptions& options, Answering answering)
    : parts_(std::make_unique<Parts>(options, std::move(answering))) {}
HttpServer::~HttpServer() = default;
int HttpServer::port() const { return parts_->bound; }
const HttpCounts& HttpServer::counts() const { return parts_->counts; }

}  // namespace evenkeel::flower
