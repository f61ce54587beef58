package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cirello.io/dynamolock/v2"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// One lock client with the settings of the protocol's "open", and the locks that it holds.
type lockClient struct {
	settings request
	locks    *dynamolock.Client
	held     map[string]*dynamolock.Lock
}

func millis(n int64) time.Duration {
	return time.Duration(n) * time.Millisecond
}

func open(settings *request) (*lockClient, error) {
	db := dynamodb.New(dynamodb.Options{
		Region:       "us-east-1",
		BaseEndpoint: aws.String(settings.Endpoint),
		Credentials:  credentials.NewStaticCredentialsProvider("local", "local", ""),
	})
	locks, err := dynamolock.New(db, settings.Table,
		dynamolock.WithPartitionKeyName("key"),
		dynamolock.WithOwnerName(settings.Owner),
		dynamolock.WithLeaseDuration(millis(settings.LeaseMillis)),
		dynamolock.WithHeartbeatPeriod(millis(settings.RenewMillis)))
	return &lockClient{settings: *settings, locks: locks, held: map[string]*dynamolock.Lock{}}, err
}

// Returns a client with the same settings and another owner.
func (c *lockClient) another(contender int) (*lockClient, error) {
	settings := c.settings
	settings.Owner = fmt.Sprintf("%s-%d", settings.Owner, contender)
	return open(&settings)
}

func (c *lockClient) acquire(asked *request) (answer, error) {
	lock, err := c.locks.AcquireLockWithContext(context.Background(), asked.Key, options(asked)...)
	if err != nil {
		return nil, err
	}
	c.held[asked.Key] = lock
	return c.told(lock), nil
}

func (c *lockClient) renew(asked *request) (answer, error) {
	var options []dynamolock.SendHeartbeatOption
	if asked.Data != nil {
		options = append(options, dynamolock.ReplaceHeartbeatData([]byte(*asked.Data)))
	}
	lock := c.held[asked.Key]
	err := c.locks.SendHeartbeatWithContext(context.Background(), lock, options...)
	var notGranted *dynamolock.LockNotGrantedError
	if errors.As(err, &notGranted) {
		return nil, lost{err}
	}
	if err != nil {
		return nil, err
	}
	return c.told(lock), nil
}

func (c *lockClient) release(asked *request) error {
	var options []dynamolock.ReleaseLockOption
	if asked.Delete != nil {
		options = append(options, dynamolock.WithDeleteLock(*asked.Delete))
	}
	lock := c.held[asked.Key]
	delete(c.held, asked.Key)
	_, err := c.locks.ReleaseLockWithContext(context.Background(), lock, options...)
	var refused *types.ConditionalCheckFailedException
	if errors.As(err, &refused) {
		return lost{err}
	}
	return err
}

func (c *lockClient) read(asked *request) (answer, error) {
	lock, err := c.locks.GetWithContext(context.Background(), asked.Key)
	if err != nil {
		return nil, err
	}
	return c.told(lock), nil
}

func options(asked *request) []dynamolock.AcquireLockOption {
	var options []dynamolock.AcquireLockOption
	if asked.WaitMillis > 0 {
		options = append(options, dynamolock.WithAdditionalTimeToWaitForLock(millis(asked.WaitMillis)))
	} else {
		options = append(options, dynamolock.FailIfLocked())
	}
	if asked.PollMillis > 0 {
		options = append(options, dynamolock.WithRefreshPeriod(millis(asked.PollMillis)))
	}
	if asked.Data != nil {
		options = append(options, dynamolock.WithData([]byte(*asked.Data)))
	}
	if asked.ReplaceData {
		options = append(options, dynamolock.ReplaceData())
	}
	if asked.DeleteOnRelease {
		options = append(options, dynamolock.WithDeleteLockOnRelease())
	}
	if len(asked.Attributes) > 0 {
		attributes := map[string]types.AttributeValue{}
		for name, text := range asked.Attributes {
			attributes[name] = &types.AttributeValueMemberS{Value: text}
		}
		options = append(options, dynamolock.WithAdditionalAttributes(attributes))
	}
	return options
}

// The library does not return version and lease. Tests that need them read them from the table.
func (c *lockClient) told(lock *dynamolock.Lock) answer {
	if lock == nil || lock.OwnerName() == "" {
		return nil
	}
	attributes := map[string]string{}
	for name, value := range lock.AdditionalAttributes() {
		switch value := value.(type) {
		case *types.AttributeValueMemberS:
			attributes[name] = value.Value
		case *types.AttributeValueMemberN:
			attributes[name] = value.Value
		}
	}
	told := answer{"owner": lock.OwnerName(), "attributes": attributes}
	if data := lock.Data(); data != nil {
		told["data"] = string(data)
	}
	return answer{"lock": told}
}
