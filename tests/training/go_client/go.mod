module feedbackclient

go 1.21
