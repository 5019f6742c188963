// A blocking HTTP client over a raw socket: sends exactly the bytes a test wants.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

namespace exode::server {

struct Answer {
  int status = 0;  // 0: the connection ended without an answer
  std::string head, body;
};

class Client {
 public:
  explicit Client(uint16_t port, int receive_buffer = 0) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_buffer > 0) {
      ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    }
    const timeval limit{20, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~Client() { close(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool connected() const { return connected_; }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  static std::string post_text(std::string_view path, std::string_view body) {
    return "POST " + std::string(path) +
           " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: " +
           std::to_string(body.size()) + "\r\n\r\n" + std::string(body);
  }
  Answer post(std::string_view path, std::string_view body) {
    send(post_text(path, body));
    return receive();
  }
  Answer request(std::string_view method, std::string_view path) {
    send(std::string(method) + " " + std::string(path) + " HTTP/1.1\r\nHost: x\r\n\r\n");
    return receive(method == "HEAD");
  }

  // Waits until `text` has arrived (it stays unread); false when the connection ends before.
  bool wait_for(std::string_view text) {
    while (data_.find(text) == std::string::npos) {
      if (!more()) return false;
    }
    return true;
  }
  bool wait_for_end() {
    while (more()) {
    }
    return ended_;
  }

  Answer receive(bool head_only = false) {
    Answer answer;
    if (!wait_for("\r\n\r\n")) return answer;
    const size_t head = data_.find("\r\n\r\n") + 4;
    answer.head = data_.substr(0, head);
    data_.erase(0, head);
    answer.status = std::atoi(answer.head.c_str() + std::strlen("HTTP/1.1 "));
    if (head_only) return answer;
    if (answer.head.find("Transfer-Encoding: chunked") != std::string::npos) {
      while (read_chunk(&answer.body)) {
      }
      return answer;
    }
    const size_t field = answer.head.find("Content-Length: ");
    if (field == std::string::npos) return answer;
    const size_t length = std::strtoul(answer.head.c_str() + field + 16, nullptr, 10);
    while (data_.size() < length && more()) {
    }
    answer.body = data_.substr(0, length);
    data_.erase(0, length);
    return answer;
  }

 private:
  bool more() {
    char buffer[16384];
    const ssize_t n = ::recv(fd_, buffer, sizeof buffer, 0);
    if (n > 0) data_.append(buffer, static_cast<size_t>(n));
    ended_ = n == 0 || (n < 0 && errno == ECONNRESET);
    return n > 0;
  }
  bool read_chunk(std::string* body) {
    if (!wait_for("\r\n")) return false;
    const size_t line = data_.find("\r\n") + 2;
    const size_t size = std::strtoul(data_.c_str(), nullptr, 16);
    while (data_.size() < line + size + 2) {
      if (!more()) return false;
    }
    body->append(data_, line, size);
    data_.erase(0, line + size + 2);
    return size > 0;
  }

  int fd_;
  bool connected_ = false, ended_ = false;
  std::string data_;
};

}  // namespace exode::server
